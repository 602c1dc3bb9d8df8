// Derivatives of the SOI map for a given mask: it is linear in x + bias, and so is its gradient in
// dy. All that backward needs is the mask.
#include <ATen/TensorOperators.h>

#include "csrc/ops/node.h"
#include "csrc/ops/soi/soi.h"

namespace gelu_kernels {
namespace {

// The node of soi_forward(x, bias) and of soi_backward(dy), which have the same gradient. It saves
// the mask.
struct SoiBackwardNode final : BackwardNode<SoiBackwardNode> {
  static constexpr const char* kName = "SoiBackward";

  static variable_list gradients(const Tensor& dy, const variable_list& saved,
                                 const std::vector<bool>& wanted, const std::string&) {
    const Tensor& mask = saved[0];
    if (wanted.size() == 1) return {soi_backward(dy, mask)};
    if (!wanted[1]) return {soi_backward(dy, mask), Tensor()};
    auto [dx, dbias] = soi_backward_bias(dy, mask);
    return {std::move(dx), std::move(dbias)};
  }
};

// Records that `result` came of `input` (and bias) by this mask, in every mode.
void record(const Tensor& result, const Tensor& mask, const Tensor& input,
            const OptionalTensor& bias = std::nullopt) {
  decltype(make_node<SoiBackwardNode>()) node;
  if (compute_requires_grad(input, bias)) {
    node = make_node<SoiBackwardNode>();
    torch::autograd::edge_list edges{torch::autograd::impl::gradient_edge(input)};
    if (bias) edges.push_back(torch::autograd::impl::gradient_edge(*bias));
    node->set_next_edges(std::move(edges));
    node->saved.emplace_back(mask, /*is_output=*/false);
  }
  OptionalTensor tangent = sum_tangent(input, bias);
  if (tangent) tangent = soi_backward(*tangent, mask);
  set_derivatives(result, node, tangent);
}

}  // namespace

std::tuple<Tensor, Tensor> SoiForward::differentiate(const Tensor& x, const OptionalTensor& bias,
                                                     const Tensor& seed, std::string_view gate,
                                                     int64_t offset, int64_t row_length,
                                                     int64_t row_stride) {
  auto [y, mask] = below_autograd(x, bias, seed, gate, offset, row_length, row_stride);
  record(y, mask, x, bias);
  return {std::move(y), std::move(mask)};
}

Tensor SoiBackward::differentiate(const Tensor& dy, const Tensor& mask) {
  Tensor dx = below_autograd(dy, mask);
  record(dx, mask, dy);
  return dx;
}

// Differentiated again only by double backward, where the two separate operations will do.
std::tuple<Tensor, Tensor> SoiBackwardBias::differentiate(const Tensor& dy, const Tensor& mask) {
  if (!is_differentiated(dy)) return below_autograd(dy, mask);
  check_soi_backward(name(), dy, mask, /*has_bias=*/true);
  return batch(dy, mask);
}

}  // namespace gelu_kernels

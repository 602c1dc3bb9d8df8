// Derivatives of the SOI map for a given mask: it is linear in x + bias, and so is its gradient in
// dy. All that backward needs is the mask. No derivative goes through the mask: the gradients of
// loc and scale are zeros, as the gradient of torch.bernoulli is.
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "csrc/ops/node.h"
#include "csrc/ops/soi/soi.h"

namespace gelu_kernels {
namespace {

// The node of soi_forward(x, bias), of soi_cdf_forward(x, loc, scale) and of soi_backward(dy),
// which have the same gradient. It saves the mask.
struct SoiBackwardNode final : BackwardNode<SoiBackwardNode> {
  static constexpr const char* kName = "SoiBackward";

  static variable_list gradients(const Tensor& dy, const variable_list& saved,
                                 const std::vector<bool>& wanted, const std::string&) {
    const Tensor& mask = saved[0];
    if (wanted.size() == 1) return {soi_backward(dy, mask)};
    if (wanted.size() == 3) {
      // The engine reduces them to a scalar where loc or scale is one.
      const auto zeros = [&dy] {
        return dy.new_zeros_symint(dy.sym_sizes().slice(std::max<int64_t>(dy.dim(), 1) - 1));
      };
      return {wanted[0] ? soi_backward(dy, mask) : Tensor(), wanted[1] ? zeros() : Tensor(),
              wanted[2] ? zeros() : Tensor()};
    }
    if (!wanted[1]) return {soi_backward(dy, mask), Tensor()};
    auto [dx, dbias] = soi_backward_bias(dy, mask);
    return {std::move(dx), std::move(dbias)};
  }
};

// Records, in every mode, that `result` came from `input` (and bias, or parameters) by this mask.
void record(const Tensor& result, const Tensor& mask, const Tensor& input,
            const OptionalTensor& bias = std::nullopt, at::ArrayRef<Tensor> parameters = {}) {
  decltype(make_node<SoiBackwardNode>()) node;
  if (compute_requires_grad(input, bias, parameters)) {
    node = make_node<SoiBackwardNode>();
    torch::autograd::edge_list edges{torch::autograd::impl::gradient_edge(input)};
    if (bias) edges.push_back(torch::autograd::impl::gradient_edge(*bias));
    for (const Tensor& t : parameters) edges.push_back(torch::autograd::impl::gradient_edge(t));
    node->set_next_edges(std::move(edges));
    node->saved.emplace_back(mask, /*is_output=*/false);
  }
  OptionalTensor tangent = sum_tangent(input, bias);
  if (tangent) tangent = soi_backward(*tangent, mask);
  if (!tangent && torch::autograd::isFwGradDefinedTensorList(parameters)) {
    tangent = at::zeros_like(result);
  }
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

std::tuple<Tensor, Tensor> SoiCdfForward::differentiate(const Tensor& x, const Tensor& loc,
                                                        const Tensor& scale, const Tensor& seed,
                                                        std::string_view gate, int64_t offset,
                                                        int64_t row_length, int64_t row_stride) {
  auto [y, mask] = below_autograd(x, loc, scale, seed, gate, offset, row_length, row_stride);
  record(y, mask, x, std::nullopt, {loc, scale});
  return {std::move(y), std::move(mask)};
}

Tensor SoiBackward::differentiate(const Tensor& dy, const Tensor& mask) {
  Tensor dx = below_autograd(dy, mask);
  record(dx, mask, dy);
  return dx;
}

// Only double backward differentiates this again; the two separate operations serve there.
std::tuple<Tensor, Tensor> SoiBackwardBias::differentiate(const Tensor& dy, const Tensor& mask) {
  if (!is_differentiated(dy)) return below_autograd(dy, mask);
  check_soi_backward(name(), dy, mask, /*has_bias=*/true);
  return batch(dy, mask);
}

}  // namespace gelu_kernels

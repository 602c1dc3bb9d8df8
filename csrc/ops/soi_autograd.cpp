// Derivatives of the SOI map for a given mask: it is linear in x + bias, and so is its gradient in
// dy. All that backward needs is the mask.
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include "csrc/ops/node.h"
#include "csrc/ops/soi_ops.h"

namespace gelu_kernels {
namespace {

// Of soi_forward(x, bias) and of soi_backward(dy), which have the same gradient; saves the mask.
struct SoiBackward final : GateNode<SoiBackward> {
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

// Records that `result` came of `input` (and bias) by this mask, if that is wanted.
void record(const Tensor& result, const Tensor& mask, const Tensor& input,
            const OptionalTensor& bias = std::nullopt) {
  if (!compute_requires_grad(input, bias)) return;
  const auto node = make_node<SoiBackward>();
  torch::autograd::edge_list edges{torch::autograd::impl::gradient_edge(input)};
  if (bias) edges.push_back(torch::autograd::impl::gradient_edge(*bias));
  node->set_next_edges(std::move(edges));
  node->saved.emplace_back(mask, /*is_output=*/false);
  torch::autograd::set_history(result, node);
}

void set_tangent(const Tensor& result, const Tensor& mask, const OptionalTensor& tangent) {
  if (!tangent) return;
  result._set_fw_grad(soi_backward(*tangent, mask), /*level=*/0, /*is_inplace_op=*/false);
}

std::tuple<Tensor, Tensor> soi_forward_autograd(const Tensor& x, const OptionalTensor& bias,
                                                const Tensor& seed, std::string_view gate,
                                                int64_t offset, int64_t row_length,
                                                int64_t row_stride) {
  auto [y, mask] = [&] {
    at::AutoDispatchBelowADInplaceOrView guard;
    return soi_forward(x, bias, seed, gate, offset, row_length, row_stride);
  }();
  record(y, mask, x, bias);
  set_tangent(y, mask, sum_tangent(x, bias));
  return {std::move(y), std::move(mask)};
}

Tensor soi_backward_autograd(const Tensor& dy, const Tensor& mask) {
  Tensor dx;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    dx = soi_backward(dy, mask);
  }
  record(dx, mask, dy);
  set_tangent(dx, mask, sum_tangent(dy, std::nullopt));
  return dx;
}

// Differentiated again only by double backward, where the two separate operations will do.
std::tuple<Tensor, Tensor> soi_backward_bias_autograd(const Tensor& dy, const Tensor& mask) {
  if (is_differentiated(dy)) {
    check_soi_backward("soi_backward_bias", dy, mask, /*has_bias=*/true);
    Tensor dx = soi_backward(dy, mask);
    Tensor dbias = sum_to_bias(dx);
    return {std::move(dx), std::move(dbias)};
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  return soi_backward_bias(dy, mask);
}

}  // namespace

TORCH_LIBRARY_IMPL(gelu_kernels, Autograd, m) {
  m.impl("soi_forward", soi_forward_autograd);
  m.impl("soi_backward", soi_backward_autograd);
  m.impl("soi_backward_bias", soi_backward_bias_autograd);
}

}  // namespace gelu_kernels

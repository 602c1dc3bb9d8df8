// Derivatives and batches of gates whose derivative is coded. Every derivative comes from the code,
// in forward mode too, so that both modes agree: the operators are linear, and so is their gradient
// in dy.
#include <ATen/Functions.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>

#include "csrc/ops/bias_sum.h"
#include "csrc/ops/coded/coded.h"
#include "csrc/ops/node.h"
#include "csrc/ops/one_by_one.h"

namespace gelu_kernels {
namespace {

// The node of coded_forward(x, bias) and of coded_backward(dy), which have the same gradient. It
// saves the code.
struct CodedBackwardNode final : BackwardNode<CodedBackwardNode, int64_t, double> {
  static constexpr const char* kName = "CodedBackward";

  static variable_list gradients(const Tensor& dy, const variable_list& saved,
                                 const std::vector<bool>& wanted, const std::string&, int64_t bits,
                                 double p) {
    const Tensor& code = saved[0];
    if (wanted.size() == 1) return {coded_backward(dy, code, bits, p)};
    if (!wanted[1]) return {coded_backward(dy, code, bits, p), Tensor()};
    auto [dx, dbias] = coded_backward_bias(dy, code, bits, p);
    return {std::move(dx), std::move(dbias)};
  }
};

// Records, in every mode, that `result` came from `input` and bias by this code.
void record_code(const Tensor& result, const Tensor& code, const Tensor& input,
                 const OptionalTensor& bias, int64_t bits, double p) {
  decltype(make_node<CodedBackwardNode>()) node;
  if (compute_requires_grad(input, bias)) {
    node = make_node<CodedBackwardNode>();
    node->numbers = {bits, p};
    torch::autograd::edge_list edges{torch::autograd::impl::gradient_edge(input)};
    if (bias) edges.push_back(torch::autograd::impl::gradient_edge(*bias));
    node->set_next_edges(std::move(edges));
    node->saved.emplace_back(code, /*is_output=*/false);
  }
  OptionalTensor tangent = sum_tangent(input, bias);
  if (tangent) tangent = coded_backward(*tangent, code, bits, p);
  set_derivatives(result, node, tangent);
}

}  // namespace

std::tuple<Tensor, Tensor> CodedForward::differentiate(const Tensor& x, const OptionalTensor& bias,
                                                       const OptionalTensor& seed,
                                                       std::string_view gate, int64_t bits,
                                                       double p, bool dither, int64_t offset,
                                                       int64_t row_length, int64_t row_stride) {
  auto [y, code] =
      below_autograd(x, bias, seed, gate, bits, p, dither, offset, row_length, row_stride);
  record_code(y, code, x, bias, bits, p);
  return {std::move(y), std::move(code)};
}

Tensor CodedBackward::differentiate(const Tensor& dy, const Tensor& code, int64_t bits, double p) {
  Tensor dx = below_autograd(dy, code, bits, p);
  record_code(dx, code, dy, std::nullopt, bits, p);
  return dx;
}

// Only double backward differentiates this again; the two separate operations serve there.
std::tuple<Tensor, Tensor> CodedBackwardBias::differentiate(const Tensor& dy, const Tensor& code,
                                                            int64_t bits, double p) {
  if (!is_differentiated(dy)) return below_autograd(dy, code, bits, p);
  check_coded_backward(name(), dy, code, bits, p, /*has_bias=*/true);
  return batch(dy, code, bits, p);
}

// Each example has bytes of its own in the code.
std::tuple<Tensor, Tensor> CodedForward::batch(const Tensor& x, const OptionalTensor& bias,
                                               const OptionalTensor& seed, std::string_view gate,
                                               int64_t bits, double p, bool dither, int64_t offset,
                                               int64_t row_length, int64_t row_stride) {
  Batched batch;
  batch.see(x);
  for (const OptionalTensor& t : {bias, seed}) {
    if (t) batch.see(*t);
  }
  return one_by_one(batch, [&](const auto& example) {
    const auto part = [&](const OptionalTensor& t) {
      return t ? OptionalTensor(example(*t)) : std::nullopt;
    };
    return coded_forward(example(x), part(bias), part(seed), gate, bits, p, dither, offset,
                         row_length, row_stride);
  });
}

// Composed of operators that have batching rules of their own, with the kernels' roundings.
Tensor CodedBackward::batch(const Tensor& dy, const Tensor& code, int64_t bits, double p) {
  check_coded_backward(name(), dy, code, bits, p, /*has_bias=*/false);
  const Codebook book(static_cast<int>(bits));
  Tensor codes = code;
  if (bits == 4) codes = at::stack({code.bitwise_and(15), code.bitwise_right_shift(4)}, -1);
  codes = codes.flatten().narrow_symint(0, 0, dy.sym_numel()).view_symint(dy.sym_sizes());
  const auto dtype = at::toOpMathType(dy.scalar_type());
  const double step = dtype == at::kDouble ? 1 / double{book.levels} : double{book.step};
  const Tensor numbers = codes.to(dtype);
  const Tensor factor = (numbers - book.zero) * step * factor_of(p);
  const Tensor dx = dy.to(dtype) * factor.masked_fill(numbers == book.nan, NAN);
  return dx.to(dy.scalar_type());
}

std::tuple<Tensor, Tensor> CodedBackwardBias::batch(const Tensor& dy, const Tensor& code,
                                                    int64_t bits, double p) {
  return with_bias_sum(coded_backward(dy, code, bits, p));
}

}  // namespace gelu_kernels

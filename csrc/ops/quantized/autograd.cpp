// Derivatives of the operators that quantise: straight through the cast, as if data/scale were the
// result.
#include "csrc/ops/gate/gradients.h"
#include "csrc/ops/glu/gradients.h"
#include "csrc/ops/quantized/backward.h"
#include "csrc/ops/quantized/quantized.h"

namespace gelu_kernels {
namespace {

// A value has two outputs, its data along the rows and along the columns. Their gradients are
// added, and the sum is cast to the dtype of x. A sum in eight bits is not: torch.compile has
// rounded it, and the operator refuses it.
template <class Gradients>
struct StraightThrough : Gradients {
  static Tensor gradient_of_value(const variable_list& grads, const variable_list& saved) {
    const Tensor& x = saved[0];
    Tensor dy = grads[0];
    if (grads[1].defined()) {
      c10::SymDimVector sizes(x.sym_sizes());
      sizes.back() = grads[1].sym_size(0);
      const Tensor of_columns = grads[1].t().reshape_symint(sizes);
      dy = dy.defined() ? dy + of_columns : of_columns;
    }
    const bool is_cast = dy.defined() && !c10::isFloat8Type(dy.scalar_type());
    return is_cast ? dy.to(x.scalar_type()) : dy;
  }
};

struct QuantizedGateNode final : StraightThrough<GateGradients<QuantizedGateNode>> {
  static constexpr const char* kName = "QuantizedGateBackward";
};
struct QuantizedGluNode final : StraightThrough<GluGradients<QuantizedGluNode>> {
  static constexpr const char* kName = "QuantizedGluBackward";
};
struct QuantizedGluHalvesNode final : StraightThrough<GluHalvesGradients<QuantizedGluHalvesNode>> {
  static constexpr const char* kName = "QuantizedGluHalvesBackward";
};

// Gives the data their node, which takes gradients of any dtype: the engine would round the
// gradient of an output to the output's dtype, eight bits.
template <class Node>
void set_straight_through(const QuantizedTensors& to, std::string_view along, const Node& node,
                          const Tensor& x) {
  if (!node) return;
  const auto set = [&](const Tensor& data, bool is_wanted) {
    if (is_wanted) {
      const auto place = node->add_input_metadata(x.options(), data.sym_sizes(), false, false, {});
      torch::autograd::impl::set_gradient_edge(data, {node, place});
    } else {
      node->add_input_metadata(torch::autograd::Node::undefined_input());
    }
  };
  set(std::get<0>(to), along != "column");
  set(std::get<2>(to), along != "row");
}

template <class... Tensors>
void refuse_tangents(const char* op, const Tensors&... tensors) {
  TORCH_CHECK_NOT_IMPLEMENTED((!isFwGradDefined(tensors) && ...), "gelu_kernels::", op,
                              ": forward-mode AD does not go through a cast to eight bits");
}

template <class... Tensors>
void refuse_derivative(const char* op, const Tensors&... tensors) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !is_differentiated(tensors...), "gelu_kernels::", op,
      ": has no derivative; call it in a backward pass that is not itself differentiated");
}

}  // namespace

QuantizedTensors QuantizedGateForward::differentiate(const Tensor& x, const OptionalTensor& bias,
                                                     const OptionalTensor& scale,
                                                     const OptionalTensor& offsets,
                                                     std::string_view gate, at::ScalarType dtype,
                                                     std::string_view scaling,
                                                     std::string_view along, std::string_view mode,
                                                     std::string_view swizzle, bool packed) {
  refuse_tangents(name(), x, bias, scale);
  const auto node = record<QuantizedGateNode>(gate, bias, x);
  QuantizedTensors to =
      below_autograd(x, bias, scale, offsets, gate, dtype, scaling, along, mode, swizzle, packed);
  set_straight_through(to, along, node, x);
  return to;
}

QuantizedTensors QuantizedGluForward::differentiate(
    const Tensor& x, const OptionalTensor& up, const OptionalTensor& weight,
    const OptionalTensor& scale, const OptionalTensor& offsets, std::string_view gate,
    std::optional<double> limit, double up_offset, at::ScalarType dtype, std::string_view scaling,
    std::string_view along, std::string_view mode, std::string_view swizzle, bool packed) {
  refuse_tangents(name(), x, up, weight, scale);
  const auto recorded = [&](const auto& node) {
    if (node) node->numbers = {limit, up_offset};
    QuantizedTensors to = below_autograd(x, up, weight, scale, offsets, gate, limit, up_offset,
                                         dtype, scaling, along, mode, swizzle, packed);
    set_straight_through(to, along, node, x);
    return to;
  };
  if (up) return recorded(record<QuantizedGluNode>(gate, weight, x, *up));
  return recorded(record<QuantizedGluHalvesNode>(gate, weight, x));
}

QuantizedTensors QuantizedGateBackward::differentiate(
    const Tensor& dy, const Tensor& x, const OptionalTensor& bias, const OptionalTensor& offsets,
    std::string_view gate, at::ScalarType dtype, std::string_view scaling, std::string_view along,
    std::string_view mode, std::string_view swizzle, bool packed) {
  refuse_derivative(name(), dy, x, bias);
  return below_autograd(dy, x, bias, offsets, gate, dtype, scaling, along, mode, swizzle, packed);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> QuantizedGateBackwardBias::differentiate(
    const Tensor& dy, const Tensor& x, const Tensor& bias, const OptionalTensor& offsets,
    std::string_view gate, at::ScalarType dtype, std::string_view scaling, std::string_view along,
    std::string_view mode, std::string_view swizzle, bool packed) {
  refuse_derivative(name(), dy, x, bias);
  return below_autograd(dy, x, bias, offsets, gate, dtype, scaling, along, mode, swizzle, packed);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>
QuantizedGluBackward::differentiate(const Tensor& dy, const Tensor& x, const Tensor& up,
                                    const OptionalTensor& weight, const OptionalTensor& offsets,
                                    std::string_view gate, std::optional<double> limit,
                                    double up_offset, at::ScalarType dtype,
                                    std::string_view scaling, std::string_view along,
                                    std::string_view mode, std::string_view swizzle, bool packed) {
  refuse_derivative(name(), dy, x, up, weight);
  return below_autograd(dy, x, up, weight, offsets, gate, limit, up_offset, dtype, scaling, along,
                        mode, swizzle, packed);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>
QuantizedGluBackwardWeight::differentiate(const Tensor& dy, const Tensor& x, const Tensor& up,
                                          const Tensor& weight, const OptionalTensor& offsets,
                                          std::string_view gate, std::optional<double> limit,
                                          double up_offset, at::ScalarType dtype,
                                          std::string_view scaling, std::string_view along,
                                          std::string_view mode, std::string_view swizzle,
                                          bool packed) {
  refuse_derivative(name(), dy, x, up, weight);
  return below_autograd(dy, x, up, weight, offsets, gate, limit, up_offset, dtype, scaling, along,
                        mode, swizzle, packed);
}

QuantizedTensors QuantizedGluHalvesBackward::differentiate(
    const Tensor& dy, const Tensor& x, const OptionalTensor& weight, const OptionalTensor& offsets,
    std::string_view gate, std::optional<double> limit, double up_offset, at::ScalarType dtype,
    std::string_view scaling, std::string_view along, std::string_view mode,
    std::string_view swizzle, bool packed) {
  refuse_derivative(name(), dy, x, weight);
  return below_autograd(dy, x, weight, offsets, gate, limit, up_offset, dtype, scaling, along, mode,
                        swizzle, packed);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> QuantizedGluHalvesBackwardWeight::differentiate(
    const Tensor& dy, const Tensor& x, const Tensor& weight, const OptionalTensor& offsets,
    std::string_view gate, std::optional<double> limit, double up_offset, at::ScalarType dtype,
    std::string_view scaling, std::string_view along, std::string_view mode,
    std::string_view swizzle, bool packed) {
  refuse_derivative(name(), dy, x, weight);
  return below_autograd(dy, x, weight, offsets, gate, limit, up_offset, dtype, scaling, along, mode,
                        swizzle, packed);
}

}  // namespace gelu_kernels

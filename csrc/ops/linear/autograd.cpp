// Derivatives of a linear layer after a gate or a gated linear unit, of any order and in every
// mode. One node saves the operands of the gate or unit, and the layer's weight, each once.
#include <ATen/Functions.h>

#include <algorithm>

#include "csrc/ops/gate/gradients.h"
#include "csrc/ops/glu/gradients.h"
#include "csrc/ops/linear/linear.h"

namespace gelu_kernels {
namespace {

Tensor matrix_of(const Tensor& t) {
  const auto leading = t.sym_sizes().slice(0, static_cast<size_t>(t.dim() - 1));
  return t.reshape_symint({c10::multiply_integers(leading), t.sym_size(-1)});
}

// Of linear(hidden, weight); transposed, as the transpose of a contiguous matrix.
Tensor hidden_gradient(const Tensor& dy, const Tensor& weight, bool transposed) {
  if (transposed) return weight.t().mm(dy.t()).t();
  c10::SymDimVector sizes(dy.sym_sizes());
  sizes.back() = weight.sym_size(1);
  return matrix_of(dy).mm(weight).reshape_symint(sizes);
}

Tensor weight_gradient(const Tensor& dy, const Tensor& hidden, bool transposed) {
  const Tensor dy_rows = matrix_of(dy), rows = matrix_of(hidden.to(dy.scalar_type()));
  return transposed ? rows.t().mm(dy_rows).t() : dy_rows.t().mm(rows);
}

// The gradients of linear(hidden, weight, bias), where Inner has the gradients of hidden. The node
// saves the tensors that Inner reads, and the weight; the inputs are these and the bias. Each
// product of matrices is the product that the node of torch's linear takes (mm_mat1_grad and
// mm_mat2_grad in torch/csrc/autograd/FunctionsManual.cpp), for the same bits.
template <class Derived, class Inner>
struct LinearGradients : Inner {
  template <class... Numbers>
  static variable_list gradients(const Tensor& dy, const variable_list& saved,
                                 const std::vector<bool>& wanted, const std::string& gate,
                                 Numbers... numbers) {
    const Tensor& weight = saved.back();
    const variable_list inner(saved.begin(), saved.end() - 1);
    const size_t of_weight = inner.size(), of_bias = of_weight + 1;
    const std::vector<bool> inner_wanted(wanted.begin(), wanted.begin() + of_weight);
    variable_list result;
    if (std::find(inner_wanted.begin(), inner_wanted.end(), true) != inner_wanted.end()) {
      const bool transposed = Derived::hidden_is_like_x && inner[0].dim() == 2 &&
                              !inner[0].is_contiguous() && inner[0].t().is_contiguous();
      const Tensor dhidden = hidden_gradient(dy, weight, transposed);
      result = Inner::gradients(dhidden.to(inner[0].scalar_type()), inner, inner_wanted, gate,
                                numbers...);
    }
    result.resize(wanted.size());
    if (wanted[of_weight]) {
      result[of_weight] =
          Derived::dweight(dy, inner, gate, numbers..., /*transposed=*/!weight.is_contiguous());
    }
    // The engine sums it.
    if (wanted.size() > of_bias && wanted[of_bias]) result[of_bias] = matrix_of(dy);
    return result;
  }
};

struct GateLinearNode final : LinearGradients<GateLinearNode, GateGradients<GateLinearNode>> {
  static constexpr const char* kName = "GateLinearBackward";
  static constexpr bool hidden_is_like_x = true;
  static Tensor dweight(const Tensor& dy, const variable_list& inner, const std::string& gate,
                        bool transposed) {
    const OptionalTensor gate_bias = inner.size() == 2 ? OptionalTensor(inner[1]) : std::nullopt;
    return gate_linear_backward_weight(dy, inner[0], gate_bias, gate, transposed);
  }
};

struct GluLinearNode final : LinearGradients<GluLinearNode, GluGradients<GluLinearNode>> {
  static constexpr const char* kName = "GluLinearBackward";
  static constexpr bool hidden_is_like_x = true;
  static Tensor dweight(const Tensor& dy, const variable_list& inner, const std::string& gate,
                        std::optional<double> limit, double up_offset, bool transposed) {
    return glu_linear_backward_weight(dy, inner[0], inner[1], gate, limit, up_offset, transposed);
  }
};

struct GluHalvesLinearNode final
    : LinearGradients<GluHalvesLinearNode, GluHalvesGradients<GluHalvesLinearNode>> {
  static constexpr const char* kName = "GluHalvesLinearBackward";
  static constexpr bool hidden_is_like_x = false;  // it is contiguous
  static Tensor dweight(const Tensor& dy, const variable_list& inner, const std::string& gate,
                        std::optional<double> limit, double up_offset, bool transposed) {
    return glu_linear_backward_weight(dy, inner[0], std::nullopt, gate, limit, up_offset,
                                      transposed);
  }
};

// linear(activate(), weight, bias), recorded as one node that saves these tensors, the weight last.
// Where there is nothing to save, and for tangents and jagged tensors, it is the composition.
template <class Node, class... Numbers, class... Tensors>
Tensor linear_after(const auto& activate, const std::tuple<Numbers...>& numbers,
                    std::string_view gate, const OptionalTensor& bias, const Tensors&... tensors) {
  const Tensor& weight = std::get<sizeof...(Tensors) - 1>(std::tie(tensors...));
  const bool composed = isFwGradDefined(bias) || (isFwGradDefined(tensors) || ...) ||
                        ((tensors.layout() != at::kStrided) || ...);
  const auto node = composed ? nullptr : record<Node>(gate, std::nullopt, tensors...);
  if (!node) return at::linear(activate(), weight, bias);
  node->numbers = numbers;
  if (bias) node->add_next_edge(torch::autograd::impl::gradient_edge(*bias));
  Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    y = at::linear(activate(), weight, bias);
  }
  torch::autograd::set_history(y, node);
  return y;
}

Tensor glu_of(const Tensor& x, const OptionalTensor& up, std::string_view gate,
              std::optional<double> limit, double up_offset) {
  if (up) return glu_forward(x, *up, std::nullopt, gate, limit, up_offset);
  return glu_halves_forward(x, std::nullopt, gate, limit, up_offset);
}

}  // namespace

Tensor gate_linear(const Tensor& x, const OptionalTensor& gate_bias, const Tensor& weight,
                   const OptionalTensor& bias, std::string_view gate) {
  const auto activate = [&] { return gate_forward(x, gate_bias, gate); };
  if (gate_bias) {
    return linear_after<GateLinearNode>(activate, std::tuple<>(), gate, bias, x, *gate_bias,
                                        weight);
  }
  return linear_after<GateLinearNode>(activate, std::tuple<>(), gate, bias, x, weight);
}

Tensor glu_linear(const Tensor& x, const OptionalTensor& up, const Tensor& weight,
                  const OptionalTensor& bias, std::string_view gate, std::optional<double> limit,
                  double up_offset) {
  const auto activate = [&] { return glu_of(x, up, gate, limit, up_offset); };
  const std::tuple numbers{limit, up_offset};
  if (up) return linear_after<GluLinearNode>(activate, numbers, gate, bias, x, *up, weight);
  return linear_after<GluHalvesLinearNode>(activate, numbers, gate, bias, x, weight);
}

Tensor GateLinearBackwardWeight::compose(const Tensor& dy, const Tensor& x,
                                         const OptionalTensor& gate_bias, std::string_view gate,
                                         bool transposed) {
  check_gate(name(), x, gate_bias, gate);
  check_rows(name(), dy, x);
  return weight_gradient(dy, gate_forward(x, gate_bias, gate), transposed);
}

Tensor GateLinearBackwardWeight::differentiate(const Tensor& dy, const Tensor& x,
                                               const OptionalTensor& gate_bias,
                                               std::string_view gate, bool transposed) {
  const bool is_composed = is_differentiated(dy, x, gate_bias);
  return (is_composed ? compose : below_autograd)(dy, x, gate_bias, gate, transposed);
}

Tensor GateLinearBackwardWeight::batch(const Tensor& dy, const Tensor& x,
                                       const OptionalTensor& gate_bias, std::string_view gate,
                                       bool transposed) {
  return compose(dy, x, gate_bias, gate, transposed);
}

Tensor GluLinearBackwardWeight::compose(const Tensor& dy, const Tensor& x, const OptionalTensor& up,
                                        std::string_view gate, std::optional<double> limit,
                                        double up_offset, bool transposed) {
  const GluOptions options{std::nullopt, gate, limit, up_offset};
  up ? check_glu(name(), x, *up, options) : check_glu_halves(name(), x, options);
  check_rows(name(), dy, x);
  return weight_gradient(dy, glu_of(x, up, gate, limit, up_offset), transposed);
}

Tensor GluLinearBackwardWeight::differentiate(const Tensor& dy, const Tensor& x,
                                              const OptionalTensor& up, std::string_view gate,
                                              std::optional<double> limit, double up_offset,
                                              bool transposed) {
  const bool is_composed = is_differentiated(dy, x, up);
  return (is_composed ? compose : below_autograd)(dy, x, up, gate, limit, up_offset, transposed);
}

Tensor GluLinearBackwardWeight::batch(const Tensor& dy, const Tensor& x, const OptionalTensor& up,
                                      std::string_view gate, std::optional<double> limit,
                                      double up_offset, bool transposed) {
  return compose(dy, x, up, gate, limit, up_offset, transposed);
}

}  // namespace gelu_kernels

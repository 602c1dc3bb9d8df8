// The backward nodes of all operators.
//
// They are written like the nodes that PyTorch generates for its own operators: the fastest route
// (a torch::autograd::Function costs 1 us more per call), and the only one that serves torch.func,
// forward-mode AD and compiled autograd alike.
#pragma once

#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "csrc/ops/compatibility.h"
#include "csrc/ops/operator.h"

namespace gelu_kernels {

using torch::autograd::compute_requires_grad;
using torch::autograd::isFwGradDefined;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// A node's gradients are a pure function, Derived::gradients, of the gradient of its output, the
// tensors it saved, which of its inputs want a gradient, the gate, if it has one, and its numbers.
// Eager backward calls it with the saved tensors; compiled autograd puts a call of it in its graph.
// Derived::gradient_of_value makes one gradient of several, where a value has several outputs.
template <class Derived, class... Numbers>
struct BackwardNode : torch::autograd::TraceableFunction {
  std::string gate;
  std::tuple<Numbers...> numbers;
  c10::SmallVector<SavedVariable, 3> saved;

  std::string name() const override { return Derived::kName; }

  static Tensor gradient_of_value(const variable_list& grads, const variable_list&) {
    return grads[0];
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable& variable : saved) variable.reset_data();
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    return gradients(grads, unpack(), wanted(), gate, numbers);
  }

  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    for (const SavedVariable& variable : saved) args.collect(variable, /*is_output=*/false);
    args.collect(gate);
    std::apply([&](const auto&... number) { (args.collect(number), ...); }, numbers);
  }

  variable_list apply_with_saved(const variable_list& grads,
                                 torch::dynamo::autograd::SwapSavedVariables& swap) override {
    using namespace torch::dynamo::autograd;
    const auto& compiler = getPyCompilerInterface();
    static const std::string function = compiler->bind_function(
        swap.get_py_compiler(), std::string("gelu_kernels_") + Derived::kName, gradients_of_ivalues,
        {IValuePacker<variable_list>::packed_type(), IValuePacker<std::vector<bool>>::packed_type(),
         IValuePacker<std::string>::packed_type(), IValuePacker<Numbers>::packed_type()...});
    for (SavedVariable& variable : saved) swap.before(variable);
    PackedArgs arguments;
    arguments.pack(unpack());
    arguments.pack(wanted());
    arguments.pack(gate);
    std::apply([&](const auto&... number) { (arguments.pack(number), ...); }, numbers);
    variable_list result = compiler->call_function(
        swap.get_py_compiler(), "apply_functional", function, grads, arguments.vec(),
        IValuePacker<std::vector<std::optional<torch::autograd::InputMetadata>>>::pack(
            get_input_metadata(next_edges())));
    for (SavedVariable& variable : saved) swap.after(variable);
    return result;
  }

 private:
  variable_list unpack() const {
    variable_list tensors;
    for (const SavedVariable& variable : saved) tensors.push_back(variable.unpack());
    return tensors;
  }

  std::vector<bool> wanted() const {
    std::vector<bool> result(num_outputs());
    for (size_t i = 0; i < result.size(); ++i) result[i] = task_should_compute_output(i);
    return result;
  }

  static variable_list gradients(const variable_list& grads, const variable_list& tensors,
                                 const std::vector<bool>& wanted, const std::string& gate,
                                 const std::tuple<Numbers...>& numbers) {
    const Tensor gradient = Derived::gradient_of_value(grads, tensors);
    if (!gradient.defined()) return variable_list(wanted.size());
    return std::apply(
        [&](const auto&... number) {
          return Derived::gradients(gradient, tensors, wanted, gate, number...);
        },
        numbers);
  }

  static variable_list gradients_of_ivalues(const variable_list& grads,
                                            const std::vector<c10::IValue>& arguments) {
    torch::dynamo::autograd::PackedArgs packed(arguments);
    const auto tensors = packed.unpack<variable_list>();
    const auto wanted = packed.unpack<std::vector<bool>>();
    const auto gate = packed.unpack<std::string>();
    // Braces evaluate in order.
    return gradients(grads, tensors, wanted, gate,
                     std::tuple<Numbers...>{packed.unpack<Numbers>()...});
  }
};

// Whether a result of these tensors is to be differentiated, in any mode.
template <class... Tensors>
bool is_differentiated(const Tensors&... tensors) {
  return compute_requires_grad(tensors...) || (isFwGradDefined(tensors) || ...);
}

// A node that computes the gradients of these tensors and saves them, if anything is to be
// recorded.
template <class Node, class... Tensors>
auto record(std::string_view gate, const OptionalTensor& bias, const Tensors&... tensors) {
  decltype(make_node<Node>()) node;
  if (!compute_requires_grad(tensors..., bias)) return node;
  node = make_node<Node>();
  node->gate = gate;
  torch::autograd::edge_list edges;
  edges.reserve(sizeof...(tensors) + 1);
  const auto add = [&](const Tensor& t) {
    edges.push_back(torch::autograd::impl::gradient_edge(t));
    node->saved.emplace_back(t, /*is_output=*/false);
  };
  (add(tensors), ...);
  if (bias) add(*bias);
  node->set_next_edges(std::move(edges));
  return node;
}

// The primal of a dual number: tangents are computed from primals.
inline Tensor primal(const Tensor& t) { return isFwGradDefined(t) ? t._fw_primal(0) : t; }
inline OptionalTensor primal(const OptionalTensor& t) { return t ? OptionalTensor(primal(*t)) : t; }

inline OptionalTensor tangent_of(const Tensor& t) {
  return isFwGradDefined(t) ? OptionalTensor(t._fw_grad(0)) : std::nullopt;
}
// The tangent of x + bias, if x or bias has one. A missing tangent is a zero.
inline OptionalTensor sum_tangent(const Tensor& x, const OptionalTensor& bias) {
  const bool x_has = isFwGradDefined(x), bias_has = isFwGradDefined(bias);
  if (!x_has && !bias_has) return std::nullopt;
  if (!bias_has) return x._fw_grad(0);
  const Tensor bias_tangent = bias->_fw_grad(0).expand_symint(x.sym_sizes());
  return x_has ? x._fw_grad(0) + bias_tangent : bias_tangent;
}

inline OptionalTensor sum_of(const OptionalTensor& a, const OptionalTensor& b) {
  if (!a || !b) return a ? a : b;
  return *a + *b;
}

// Attaches the gradient's node and the tangent to a result, if there are any.
template <class Node>
void set_derivatives(const Tensor& result, const Node& node, const OptionalTensor& tangent) {
  if (node) torch::autograd::set_history(result, node);
  if (tangent) result._set_fw_grad(*tangent, /*level=*/0, /*is_inplace_op=*/false);
}

}  // namespace gelu_kernels

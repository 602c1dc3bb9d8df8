// The gradients of a gate, for the nodes of all operators that compute one.
#pragma once

#include "csrc/ops/gate/gate.h"
#include "csrc/ops/node.h"

namespace gelu_kernels {

// The gradients of g(x + bias); the node saves x and bias.
template <class Node>
struct GateGradients : BackwardNode<Node> {
  static variable_list gradients(const Tensor& dy, const variable_list& saved,
                                 const std::vector<bool>& wanted, const std::string& gate) {
    const Tensor& x = saved[0];
    if (saved.size() == 1) return {gate_backward(dy, x, std::nullopt, gate)};
    const Tensor& bias = saved[1];
    if (!wanted[1]) return {gate_backward(dy, x, bias, gate), Tensor()};
    auto [dx, dbias] = gate_backward_bias(dy, x, bias, gate);
    return {std::move(dx), std::move(dbias)};
  }
};

}  // namespace gelu_kernels

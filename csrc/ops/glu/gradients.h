// The gradients of the gated linear unit, for the nodes of all operators that compute one.
#pragma once

#include "csrc/ops/glu/glu.h"
#include "csrc/ops/node.h"

namespace gelu_kernels {

// The gradients of glu_forward(x, up, weight); the node saves x, up and weight.
template <class Node>
struct GluGradients : BackwardNode<Node, std::optional<double>, double> {
  static variable_list gradients(const Tensor& dy, const variable_list& saved,
                                 const std::vector<bool>& wanted, const std::string& gate,
                                 std::optional<double> limit, double up_offset) {
    const Tensor &x = saved[0], &up = saved[1];
    const OptionalTensor weight = saved.size() == 3 ? OptionalTensor(saved[2]) : std::nullopt;
    if (!wanted[0] && GluOptions{weight, gate, limit, up_offset}.is_plain()) {
      return {Tensor(), glu_forward(x, dy, weight, gate, limit, up_offset)};
    }
    variable_list result(saved.size());
    if (weight && wanted[2]) {
      std::tie(result[0], result[1], result[2]) =
          glu_backward_weight(dy, x, up, *weight, gate, limit, up_offset);
    } else {
      std::tie(result[0], result[1]) = glu_backward(dy, x, up, weight, gate, limit, up_offset);
    }
    for (size_t i = 0; i < result.size(); ++i) {
      if (!wanted[i]) result[i] = Tensor();
    }
    return result;
  }
};

// The gradients of glu_halves_forward(x, weight); the node saves x and weight.
template <class Node>
struct GluHalvesGradients : BackwardNode<Node, std::optional<double>, double> {
  static variable_list gradients(const Tensor& dy, const variable_list& saved,
                                 const std::vector<bool>& wanted, const std::string& gate,
                                 std::optional<double> limit, double up_offset) {
    const Tensor& x = saved[0];
    if (saved.size() == 1) {
      return {glu_halves_backward(dy, x, std::nullopt, gate, limit, up_offset)};
    }
    const Tensor& weight = saved[1];
    if (!wanted[1]) {
      return {glu_halves_backward(dy, x, weight, gate, limit, up_offset), Tensor()};
    }
    auto [dx, dweight] = glu_halves_backward_weight(dy, x, weight, gate, limit, up_offset);
    return {wanted[0] ? std::move(dx) : Tensor(), std::move(dweight)};
  }
};

}  // namespace gelu_kernels

// Where releases of torch differ in C++; gelu_kernels/compatibility.py has the rest.
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>

namespace gelu_kernels {

// Up to torch 2.12 a shared_ptr holds a node, from 2.13 on an intrusive_ptr.
template <class Node>
auto make_node() {
  using Pointer = decltype(torch::autograd::Edge::function);
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>) {
    // deleteNode, found by its argument's namespace, takes long chains apart without recursion.
    return std::shared_ptr<Node>(new Node(), [](Node* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<Node>();
  }
}

// Whether kernels for the stream may go to a graph. From torch 2.13 on a stream knows.
template <class Stream>
bool may_capture(const Stream& stream) {
  if constexpr (requires { stream.is_capturing(); }) {
    return stream.is_capturing();
  } else {
    return true;
  }
}

}  // namespace gelu_kernels

// Jagged nested tensors: an operator that is not pointwise runs on their values.
#pragma once

#include <ATen/ops/_nested_get_jagged_dummy.h>
#include <ATen/ops/_nested_get_lengths.h>
#include <ATen/ops/_nested_get_max_seqlen.h>
#include <ATen/ops/_nested_get_min_seqlen.h>
#include <ATen/ops/_nested_get_offsets.h>
#include <ATen/ops/_nested_get_ragged_idx.h>
#include <ATen/ops/_nested_get_values.h>
#include <ATen/ops/_nested_view_from_jagged.h>

#include "csrc/ops/check.h"

namespace gelu_kernels {

// The values of a jagged tensor, without the holes, whose contents are arbitrary.
inline at::Tensor jagged_values(const char* op, const Argument& argument) {
  const auto& [name, t] = argument;
  TORCH_CHECK_VALUE(!at::_nested_get_lengths(t).defined(), "gelu_kernels::", op, ": ", name,
                    " must have no holes, as narrow() leaves them; use ", name, ".contiguous()");
  return at::_nested_get_values(t);
}

// on_values(values of x), which has their shape, as a tensor that is jagged like x. x may not be
// ragged along its last dimension, where a bias lies.
template <class Op>
at::Tensor map_values(const char* op, const at::Tensor& x, Op on_values) {
  const int64_t ragged = at::_nested_get_ragged_idx(x);
  TORCH_CHECK_VALUE(ragged != x.dim() - 1, "gelu_kernels::", op,
                    ": x must not be ragged along its last dimension");
  const auto optional = [](const at::Tensor& t) {
    return t.defined() ? std::optional<at::Tensor>(t) : std::nullopt;
  };
  return at::_nested_view_from_jagged(
      on_values(jagged_values(op, {"x", x})), at::_nested_get_offsets(x),
      at::_nested_get_jagged_dummy(x), /*lengths=*/std::nullopt, ragged,
      optional(at::_nested_get_min_seqlen(x)), optional(at::_nested_get_max_seqlen(x)));
}

}  // namespace gelu_kernels

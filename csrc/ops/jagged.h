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

namespace gelu_kernels {

// on_values(values of x), which has their shape, as a tensor that is jagged like x. x may not be
// ragged along its last dimension, where a bias lies, nor have holes, whose values are arbitrary.
template <class Op>
at::Tensor map_values(const char* op, const at::Tensor& x, Op on_values) {
  const int64_t ragged = at::_nested_get_ragged_idx(x);
  TORCH_CHECK_VALUE(ragged != x.dim() - 1, "gelu_kernels::", op,
                    ": x must not be ragged along its last dimension");
  TORCH_CHECK_VALUE(!at::_nested_get_lengths(x).defined(), "gelu_kernels::", op,
                    ": x must have no holes, as narrow() leaves them; use x.contiguous()");
  const auto optional = [](const at::Tensor& t) {
    return t.defined() ? std::optional<at::Tensor>(t) : std::nullopt;
  };
  return at::_nested_view_from_jagged(
      on_values(at::_nested_get_values(x)), at::_nested_get_offsets(x),
      at::_nested_get_jagged_dummy(x), /*lengths=*/std::nullopt, ragged,
      optional(at::_nested_get_min_seqlen(x)), optional(at::_nested_get_max_seqlen(x)));
}

}  // namespace gelu_kernels

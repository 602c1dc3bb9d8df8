// A tensor as the kernels of every device see it.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <array>
#include <optional>
#include <tuple>

#include "csrc/gates/column_sums.h"
#include "csrc/gates/gates.h"

namespace gelu_kernels {

inline char* data_of(const at::Tensor& t) {
  return static_cast<char*>(const_cast<void*>(t.const_data_ptr()));
}

// Whether the tensors have the same elements at the same places in memory, without gaps.
template <class... Tensors>
bool lie_alike(const at::Tensor& first, const Tensors&... others) {
  const auto like_first = [&first](const at::Tensor& t) {
    return t.sizes() == first.sizes() && t.strides() == first.strides();
  };
  return first.is_non_overlapping_and_dense() && (like_first(others) && ...);
}

inline Dtype dtype_of(const at::Tensor& t) {
  switch (t.scalar_type()) {
    case at::kDouble:
      return Dtype::float64;
    case at::kFloat:
      return Dtype::float32;
    case at::kHalf:
      return Dtype::float16;
    default:
      return Dtype::bfloat16;
  }
}

// `t` as a matrix whose rows are its last dimension, if that needs no copy.
inline std::optional<Matrix> matrix_layout(const at::Tensor& t, int64_t rows, int64_t columns) {
  const int64_t size = static_cast<int64_t>(t.element_size());
  // computeStride allocates: for two operands, 0.1 us of a small call's 2.
  if (t.is_contiguous()) return Matrix{data_of(t), size, columns * size};
  const auto strides =
      at::detail::computeStride(t.sizes(), t.strides(), at::IntArrayRef({rows, columns}));
  if (!strides) return std::nullopt;
  return Matrix{data_of(t), (*strides)[1] * size, (*strides)[0] * size};
}

// Calls run(rows, columns, matrices...) with the outputs, then the inputs, of one shape as
// matrices; with copies where they are no matrices.
template <int outputs = 1, class Run, class... Tensors>
void with_matrices(int64_t columns, const Run& run, const Tensors&... operands) {
  const int64_t rows = std::get<0>(std::tie(operands...)).numel() / columns;
  const auto have_run = [&](const auto&... matrices) {
    if (!(matrices && ...)) return false;
    run(rows, columns, *matrices...);
    return true;
  };
  if (have_run(matrix_layout(operands, rows, columns)...)) return;
  size_t k = 0;
  const auto copy_of = [&k](const at::Tensor& t) {
    return k++ < outputs ? at::empty_like(t, at::MemoryFormat::Contiguous) : t.contiguous();
  };
  const std::array<at::Tensor, sizeof...(operands)> copies{copy_of(operands)...};
  std::apply([&](const auto&... t) { with_matrices<outputs>(columns, run, t...); }, copies);
  k = 0;
  const auto copy_back = [&](const at::Tensor& t) {
    if (k < outputs) t.copy_(copies[k]);
    ++k;
  };
  (copy_back(operands), ...);
}

// The same, but as one row if all are contiguous and rows do not matter, and without a call if
// there are no elements.
template <int outputs = 1, class Run, class... Tensors>
void in_row_major_order(bool by_rows, const Run& run, const at::Tensor& out,
                        const Tensors&... operands) {
  if (out.numel() == 0) return;
  const bool one_row = !by_rows && out.is_contiguous() && (operands.is_contiguous() && ...);
  with_matrices<outputs>(one_row ? out.numel() : out.size(-1), run, out, operands...);
}

// Iterates over the elements of the outputs and of the inputs, which broadcast to them: dimensions
// are sorted by stride and merged where possible.
template <int outputs, class... Tensors>
at::TensorIterator iterator_over(const Tensors&... operands) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).resize_outputs(false);
  int k = 0;
  ((k++ < outputs ? config.add_output(operands) : config.add_const_input(operands)), ...);
  return config.build();
}

}  // namespace gelu_kernels

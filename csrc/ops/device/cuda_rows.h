// The operands of csrc/cuda/map.cuh: an iteration over tensors as rows of vectors, or with strides.
#pragma once

#include <ATen/TensorIterator.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "csrc/cuda/kernels.h"
#include "csrc/cuda/tuning.h"

namespace gelu_kernels {

inline bool is_aligned(const char* data, int64_t stride) {
  return (reinterpret_cast<uintptr_t>(data) | static_cast<uintptr_t>(stride)) %
             cuda::kVectorBytes ==
         0;
}

// This many consecutive elements as rows of one segment each; the operands are filled in later.
inline cuda::Rows segments_of(int64_t elements, int64_t size) {
  const int64_t columns = cuda::kSegmentBytes / size;
  const int64_t rows = (elements + columns - 1) / columns;
  cuda::Rows m = {};
  m.rows = static_cast<int32_t>(rows);
  m.columns = static_cast<int32_t>(columns);
  m.last_columns = static_cast<int32_t>(elements - (rows - 1) * columns);
  return m;
}

// The iteration, whose last operands lie along the columns, as rows of vectors, if it is that. The
// rows of a matrix are whole vectors, because its rows are aligned: between rows of an output there
// is no gap, or only the other half of a row, which is an output as well and aligned too.
inline std::optional<cuda::Rows> rows_of(const at::TensorIterator& iterator, int along_columns) {
  const int64_t size = static_cast<int64_t>(iterator.element_size(0));
  const bool matrix = iterator.ndim() == 2;
  if (!matrix && (along_columns > 0 || iterator.ndim() != 1)) return std::nullopt;
  const int64_t columns = iterator.shape()[0], rows = matrix ? iterator.shape()[1] : 1;
  if (matrix && columns * size < cuda::kLeastRowBytes) return std::nullopt;
  cuda::Rows m = segments_of(columns, size);
  if (matrix) {
    m.rows = static_cast<int32_t>(rows);
    m.columns = m.last_columns = static_cast<int32_t>(columns);
  }
  int64_t largest = std::max(rows, matrix ? columns : 1);
  for (int k = 0; k < iterator.ntensors(); ++k) {
    const int64_t stride = iterator.strides(k)[0];
    const int64_t row_stride = matrix ? iterator.strides(k)[1] : stride * m.columns;
    largest = std::max(largest, row_stride);
    m.data[k] = static_cast<char*>(iterator.data_ptr(k));
    m.row_stride[k] = static_cast<int32_t>(row_stride);
    if (stride != size || !is_aligned(m.data[k], row_stride)) return std::nullopt;
    if (k >= iterator.ntensors() - along_columns && row_stride != 0) return std::nullopt;
  }
  if (largest > std::numeric_limits<int32_t>::max()) return std::nullopt;
  return m;
}

// The iteration's offsets must be under 2^31.
inline cuda::Strided strided(const at::TensorIterator& iterator) {
  TORCH_CHECK(iterator.ndim() <= cuda::kMaxDims, "gelu_kernels: x must have at most ",
              cuda::kMaxDims, " dimensions that do not merge, got ", iterator.ndim());
  cuda::Strided m = {};
  m.dims = iterator.ndim();
  for (int d = 0; d < m.dims; ++d) m.sizes[d] = static_cast<uint32_t>(iterator.shape()[d]);
  for (int k = 0; k < iterator.ntensors(); ++k) {
    m.data[k] = static_cast<char*>(iterator.data_ptr(k));
    for (int d = 0; d < m.dims; ++d) {
      m.strides[k][d] = static_cast<uint32_t>(iterator.strides(k)[d]);
    }
  }
  return m;
}

}  // namespace gelu_kernels

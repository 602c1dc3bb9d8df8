// Element by element functions on a GPU: tensors for the launchers of csrc/cuda/map.cuh.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "csrc/cuda/tuning.h"
#include "csrc/ops/cuda.h"
#include "csrc/ops/layout.h"

namespace gelu_kernels {

inline bool is_aligned(const char* data, int64_t stride) {
  return (reinterpret_cast<uintptr_t>(data) | static_cast<uintptr_t>(stride)) %
             cuda::kVectorBytes ==
         0;
}

// So many consecutive elements, as rows of a segment each; the operands are still to be filled in.
inline cuda::Rows segments_of(int64_t elements, int64_t size) {
  const int64_t columns = cuda::kSegmentBytes / size;
  const int64_t rows = (elements + columns - 1) / columns;
  cuda::Rows m = {};
  m.rows = static_cast<int32_t>(rows);
  m.columns = static_cast<int32_t>(columns);
  m.last_columns = static_cast<int32_t>(elements - (rows - 1) * columns);
  return m;
}

// The iteration as rows of vectors, if it is that.
inline std::optional<cuda::Rows> rows_of(const at::TensorIterator& iterator, bool biased) {
  const int64_t size = static_cast<int64_t>(iterator.element_size(0));
  const int bias = biased ? iterator.ntensors() - 1 : -1;
  const bool matrix = iterator.ndim() == 2;
  if (!matrix && (biased || iterator.ndim() != 1)) return std::nullopt;
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
    if (k == bias && row_stride != 0) return std::nullopt;
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

// Runs a kernel over the elements of its outputs and then of its inputs, which broadcast to them;
// the last is the bias if there is one. Tensors that lie in memory alike are one long row.
template <int outputs = 1, class... Tensors>
void map(const char* op, cuda::Map kernel, bool biased, const at::Tensor& out,
         const Tensors&... operands) {
  if (out.numel() == 0) return;
  if (!biased && lie_alike(out, operands...) && is_aligned(data_of(out), 0) &&
      (is_aligned(data_of(operands), 0) && ...)) {
    cuda::Rows m = segments_of(out.numel(), static_cast<int64_t>(out.element_size()));
    int k = 0;
    for (char* data : {data_of(out), data_of(operands)...}) {
      m.data[k] = data;
      m.row_stride[k++] = cuda::kSegmentBytes;
    }
    return start(op, out, kernel.rows, m);
  }
  const at::TensorIterator iterator = iterator_over<outputs>(out, operands...);
  if (const auto m = rows_of(iterator, biased)) return start(op, out, kernel.rows, *m);
  for (const at::TensorIterator& part : iterator.with_32bit_indexing()) {
    start(op, out, kernel.strided, strided(part));
  }
}

}  // namespace gelu_kernels

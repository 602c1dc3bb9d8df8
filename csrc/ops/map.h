// Element by element functions on the CPU: tensors and threads for a loop of csrc/cpu/loops.h.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <iterator>

#include "csrc/cpu/loops.h"
#include "csrc/ops/layout.h"

namespace gelu_kernels {

inline const cpu::Loops& loops_for(const at::Tensor& x, Gate gate) {
  return cpu::loops(gate, dtype_of(x), x.numel());
}

// Runs a loop over the elements of its outputs and then of its inputs, which broadcast to them.
// Tensors that lie in memory alike and without gaps are one long row.
template <int outputs = 1, class... Tensors>
void map(cpu::Map loop, const at::Tensor& out, const Tensors&... operands) {
  if (lie_alike(out, operands...)) {
    const int64_t size = static_cast<int64_t>(out.element_size());
    at::parallel_for(0, out.numel(), at::internal::GRAIN_SIZE, [&](int64_t begin, int64_t end) {
      char* data[] = {data_of(out) + begin * size, data_of(operands) + begin * size...};
      int64_t strides[2 * std::size(data)];
      std::fill(std::begin(strides), std::end(strides), size);
      loop(data, strides, end - begin, 1);
    });
    return;
  }
  iterator_over<outputs>(out, operands...).for_each(loop, at::internal::GRAIN_SIZE);
}

}  // namespace gelu_kernels

// Shapes and strides of the results, without data, for torch.compile and FakeTensor. Results have
// the strides of x where x is dense in some order of its dimensions.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cstddef>

#include "csrc/gates/passes.h"

namespace gelu_kernels {

struct Meta {
  static constexpr bool has_data = false;
  using Passes = gelu_kernels::Passes<std::nullptr_t>;

  static at::Tensor empty_like(const at::Tensor& x) { return at::empty_like(x); }
  static at::Tensor empty_contiguous(const at::Tensor& x) {
    return at::empty_symint(x.sym_sizes(), x.options());
  }

  template <int outputs = 1, int columns = 0, class... Arguments>
  static void map(const Arguments&...) {}
};

}  // namespace gelu_kernels

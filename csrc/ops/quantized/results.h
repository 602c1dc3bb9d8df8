// The eight-bit tensors of a quantised matrix: how a caller asks for them, their shapes, and where
// a kernel writes them.
#pragma once

#include <ATen/Functions.h>

#include "csrc/gates/quantized.h"
#include "csrc/ops/check.h"
#include "csrc/ops/operator.h"

namespace gelu_kernels {

// The arguments of the operators, in the words of torch.nn.functional.scaled_mm.
struct QuantizeOptions {
  at::ScalarType dtype;
  std::string_view scaling, along, mode, swizzle;
};

struct Recipe {
  at::ScalarType dtype;
  Scaling scaling;
  bool along_rows, along_columns, rounds_up, is_swizzled;

  bool is_e5m2() const { return dtype == at::kFloat8_e5m2; }
  BlockScaling blocks() const {
    return {is_e5m2() ? e5m2::largest_exponent : e4m3fn::largest_exponent, rounds_up};
  }
};

// Checks the options, x, whose dtype and sizes they concern, and the scale.
Recipe recipe_of(const char* op, const QuantizeOptions& options, const Tensor& x,
                 const OptionalTensor& scale);

// Checks that the sizes of a result with these columns, and rows like x's, divide into blocks.
void check_sizes(const char* op, const Recipe& recipe, const Tensor& x, const c10::SymInt& columns);

// The same for MX, the one that the gradients have.
inline Recipe mx_recipe_of(const char* op, at::ScalarType dtype, std::string_view along,
                           std::string_view mode, std::string_view swizzle, const Tensor& x) {
  return recipe_of(op, {dtype, "BlockWise1x32", along, mode, swizzle}, x, std::nullopt);
}

// data, scales, column_data and column_scales. A direction that is not wanted has no elements.
using QuantizedTensors = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// Allocates the results for this many columns and x's other dimensions, after the checks.
QuantizedTensors empty_results(const char* op, const Recipe& recipe, const Tensor& x,
                               const c10::SymInt& columns);

// Zeros where no kernel writes, or all kernels take the maximum.
void clear(const Recipe& recipe, const QuantizedTensors& to);

// The part of `to` that begins at that column.
QuantizedResult part_of(const Recipe& recipe, const QuantizedTensors& to, int64_t first_column = 0);

}  // namespace gelu_kernels

// The eight-bit tensors of a quantised matrix: how a caller asks for them, their shapes, and where
// a kernel writes them.
#pragma once

#include <ATen/Functions.h>

#include "csrc/gates/quantized.h"
#include "csrc/ops/check.h"
#include "csrc/ops/operator.h"

namespace gelu_kernels {

// The arguments of the operators, in the words of torch.nn.functional.scaled_mm and grouped_mm.
struct QuantizeOptions {
  const OptionalTensor& offsets;
  at::ScalarType dtype;
  std::string_view scaling, along, mode, swizzle;
  bool packed;
};

// The rule of the scales that an operator takes if its caller names none.
std::string_view mode_or_default(std::optional<std::string_view> mode, std::string_view scaling);

struct Recipe {
  at::ScalarType dtype;
  Scaling scaling;
  bool along_rows, along_columns;
  bool has_powers, rounds_up;  // powers of two
  bool is_swizzled, is_packed;
  OptionalTensor offsets;

  bool is_e5m2() const { return dtype == at::kFloat8_e5m2; }
  bool is_mx() const { return scaling == Scaling::BlockWise1x32; }
  bool has_blocks() const { return is_mx() || scaling == Scaling::BlockWise1x128; }
  // The numbers of a block, if there are blocks.
  int64_t block() const { return is_mx() ? kMxBlock : kFloatBlock; }
  c10::SymInt groups() const { return offsets ? offsets->sym_numel() : c10::SymInt(1); }
  // Groups change no other result.
  bool has_groups() const { return offsets && (along_columns || is_swizzled); }

  // Everything but where the results go.
  Quantization quantization() const;
};

// Checks the options, x, whose dtype and sizes they concern, and the scale.
Recipe recipe_of(const char* op, const QuantizeOptions& options, const Tensor& x,
                 const OptionalTensor& scale = std::nullopt);
// The same for gradients, which have no given scale.
Recipe gradient_recipe_of(const char* op, const QuantizeOptions& options, const Tensor& x);

// Checks that the sizes of a result with these columns, and rows like x's, divide into blocks.
void check_sizes(const char* op, const Recipe& recipe, const Tensor& x, const c10::SymInt& columns);

// data, scales, column_data and column_scales. A direction that is not wanted has no elements.
using QuantizedTensors = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// Allocates the results for this many columns and x's other dimensions, after the checks.
QuantizedTensors empty_results(const char* op, const Recipe& recipe, const Tensor& x,
                               const c10::SymInt& columns);

// Sets scales that no kernel writes, and those of which all kernels take the maximum.
void clear(const Recipe& recipe, const QuantizedTensors& to);

// The part of `to` that begins at that column, for a result with so many rows.
QuantizedResult part_of(const Recipe& recipe, const QuantizedTensors& to, int64_t first_column,
                        int64_t rows);

}  // namespace gelu_kernels

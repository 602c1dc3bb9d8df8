#include "csrc/ops/quantized/results.h"

#include "csrc/ops/device/huge_pages.h"
#include "csrc/ops/layout.h"

namespace gelu_kernels {

namespace {

// The index of a name in a list.
template <size_t n>
size_t find_name(const char* op, const char* argument, const char* const (&names)[n],
                 std::string_view name) {
  for (size_t i = 0; i < n; ++i) {
    if (names[i] == name) return i;
  }
  std::string all;
  for (const char* other : names) all += c10::str(" '", other, "'");
  TORCH_CHECK_VALUE(false, "gelu_kernels::", op, ": ", argument, " must be one of", all, ", got '",
                    name, "'");
}

void check_multiple(const char* op, const char* of, const c10::SymInt& size, int64_t divisor) {
  TORCH_CHECK_VALUE(size % divisor == 0, "gelu_kernels::", op, ": ", of, " must be a multiple of ",
                    divisor, ", got ", size);
}

c10::SymInt rows_of(const Tensor& x) {
  c10::SymInt rows = 1;
  for (const c10::SymInt& size : x.sym_sizes().slice(0, static_cast<size_t>(x.dim() - 1))) {
    rows = rows * size;
  }
  return rows;
}

// scaled_mm divides its matrices into vectors of 16.
int64_t divisor_of(Scaling scaling) {
  switch (scaling) {
    case Scaling::BlockWise1x128:
      return kFloatBlock;
    case Scaling::BlockWise1x32:
      return kMxBlock;
    default:
      return 16;
  }
}

void check_scale(const char* op, const Tensor& x, const OptionalTensor& scale) {
  TORCH_CHECK_VALUE(scale, "gelu_kernels::", op, ": scale must be given for TensorWise");
  TORCH_CHECK_TYPE(scale->scalar_type() == at::kFloat, "gelu_kernels::", op,
                   ": scale must be float32, got ", dtype_name(scale->scalar_type()));
  TORCH_CHECK_TYPE(scale->layout() == at::kStrided, "gelu_kernels::", op,
                   ": scale must be a strided tensor, got layout ", scale->layout());
  TORCH_CHECK_VALUE(scale->sym_numel() == 1, "gelu_kernels::", op,
                    ": scale must be one number, got shape ", scale->sym_sizes());
  TORCH_CHECK_VALUE(scale->device() == x.device(), "gelu_kernels::", op,
                    ": scale must be on the device of x, ", x.device(), ", got ", scale->device());
}

}  // namespace

Recipe recipe_of(const char* op, const QuantizeOptions& options, const Tensor& x,
                 const OptionalTensor& scale) {
  static constexpr const char* kScalings[] = {"TensorWise", "RowWise", "BlockWise1x128",
                                              "BlockWise1x32"};
  static constexpr const char* kAlong[] = {"row", "column", "both"};
  static constexpr const char* kModes[] = {"floor", "rceil"};
  static constexpr const char* kSwizzles[] = {"NO_SWIZZLE", "SWIZZLE_32_4_4"};
  TORCH_CHECK_TYPE(options.dtype == at::kFloat8_e4m3fn || options.dtype == at::kFloat8_e5m2,
                   "gelu_kernels::", op,
                   ": dtype must be torch.float8_e4m3fn or torch.float8_e5m2, got ",
                   dtype_name(options.dtype));
  const auto scaling = static_cast<Scaling>(find_name(op, "scaling", kScalings, options.scaling));
  const size_t along = find_name(op, "along", kAlong, options.along);
  const Recipe recipe{options.dtype,
                      scaling,
                      along != 1,
                      along != 0,
                      find_name(op, "mode", kModes, options.mode) == 1,
                      find_name(op, "swizzle", kSwizzles, options.swizzle) == 1};
  const bool is_mx = scaling == Scaling::BlockWise1x32;
  TORCH_CHECK_VALUE(is_mx || !recipe.along_columns, "gelu_kernels::", op,
                    ": along must be 'row' for ", options.scaling, ", got '", options.along, "'");
  TORCH_CHECK_VALUE(is_mx || !recipe.is_swizzled, "gelu_kernels::", op,
                    ": swizzle must be 'NO_SWIZZLE' for ", options.scaling, ", got '",
                    options.swizzle, "'");
  TORCH_CHECK_TYPE(x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16,
                   "gelu_kernels::", op, ": x must be float32 or bfloat16, got ",
                   dtype_name(x.scalar_type()));
  TORCH_CHECK_TYPE(x.layout() == at::kStrided, "gelu_kernels::", op,
                   ": x must be a strided tensor, got layout ", x.layout());
  TORCH_CHECK_VALUE(x.dim() > 0, "gelu_kernels::", op,
                    ": x must have a last dimension for the scales, got a 0-d tensor");
  if (scaling == Scaling::TensorWise) {
    check_scale(op, x, scale);
  } else {
    TORCH_CHECK_VALUE(!scale, "gelu_kernels::", op, ": scale must be None for ", options.scaling,
                      ", which computes its scales");
  }
  return recipe;
}

void check_sizes(const char* op, const Recipe& recipe, const Tensor& x,
                 const c10::SymInt& columns) {
  check_multiple(op, "the last dimension of the result", columns, divisor_of(recipe.scaling));
  if (recipe.along_columns) {
    check_multiple(op, "the number of rows of x", rows_of(x), kMxBlock);
  }
}

QuantizedTensors empty_results(const char* op, const Recipe& recipe, const Tensor& x,
                               const c10::SymInt& columns) {
  check_sizes(op, recipe, x, columns);
  const c10::SymInt rows = rows_of(x);
  const auto empty = [&](at::ScalarType dtype, c10::SymIntArrayRef sizes) {
    Tensor t = at::empty_symint(sizes, x.options().dtype(dtype));
    return t.is_cpu() ? in_huge_pages(std::move(t)) : t;
  };
  const auto swizzled = [&](const c10::SymInt& rows, const c10::SymInt& columns) {
    return empty(at::kFloat8_e8m0fnu, {(rows + 127) / 128 * 32, (columns + 127) / 128 * 16});
  };
  const auto like_x = [&](const c10::SymInt& last) {
    c10::SymDimVector sizes(x.sym_sizes());
    sizes.back() = last;
    return sizes;
  };
  const auto none = [&] { return empty(recipe.dtype, {0}); };
  Tensor data, scales, column_data, column_scales;
  if (recipe.along_columns) {
    column_data = empty(recipe.dtype, {columns, rows});
    column_scales = recipe.is_swizzled ? swizzled(columns, rows)
                                       : empty(at::kFloat8_e8m0fnu, {columns, rows / kMxBlock});
  } else {
    column_data = none();
    column_scales = none();
  }
  if (!recipe.along_rows) return {none(), none(), column_data, column_scales};
  data = empty(recipe.dtype, like_x(columns));
  switch (recipe.scaling) {
    case Scaling::TensorWise:
      scales = empty(at::kFloat, {});
      break;
    case Scaling::RowWise:
      scales = empty(at::kFloat, like_x(1));
      break;
    case Scaling::BlockWise1x128:
      scales = empty(at::kFloat, {columns / kFloatBlock, rows}).t();
      scales = scales.view_symint(like_x(columns / kFloatBlock));
      break;
    case Scaling::BlockWise1x32:
      scales = recipe.is_swizzled ? swizzled(rows, columns)
                                  : empty(at::kFloat8_e8m0fnu, like_x(columns / kMxBlock));
  }
  return {data, scales, column_data, column_scales};
}

void clear(const Recipe& recipe, const QuantizedTensors& to) {
  const auto& [data, scales, column_data, column_scales] = to;
  if (recipe.scaling == Scaling::TensorWise) scales.zero_();
  if (recipe.scaling == Scaling::RowWise && data.numel() == 0) scales.fill_(FloatScale::least);
  if (!recipe.is_swizzled) return;
  if (scales.numel() * kMxBlock > data.numel()) scales.view(at::kByte).zero_();
  if (column_scales.numel() * kMxBlock > column_data.numel()) {
    column_scales.view(at::kByte).zero_();
  }
}

QuantizedResult part_of(const Recipe& recipe, const QuantizedTensors& to, int64_t first_column) {
  const auto& [data, scales, column_data, column_scales] = to;
  const int64_t columns = recipe.along_rows ? data.size(-1) : column_data.size(0);
  const int64_t rows = recipe.along_columns ? column_data.size(1)
                       : columns            ? data.numel() / columns
                                            : 0;
  const auto bytes = [](const Tensor& t) { return reinterpret_cast<uint8_t*>(data_of(t)); };
  const auto tiles = [&](int64_t columns) {
    return recipe.is_swizzled ? (columns + 127) / 128 : 0;
  };
  QuantizedResult result = {};
  if (recipe.along_rows) {
    const bool has_tall_blocks = recipe.scaling == Scaling::BlockWise1x128;
    const int64_t blocks = recipe.scaling == Scaling::BlockWise1x32 ? columns / kMxBlock : 1;
    result.rows = {bytes(data) + first_column,
                   columns,
                   data_of(scales),
                   {has_tall_blocks ? 1 : blocks, has_tall_blocks ? rows : 1, tiles(columns), 0,
                    first_column / kMxBlock}};
  }
  if (recipe.along_columns) {
    result.columns = {bytes(column_data) + first_column * rows,
                      rows,
                      data_of(column_scales),
                      {rows / kMxBlock, 1, tiles(rows), first_column, 0}};
  }
  return result;
}

}  // namespace gelu_kernels

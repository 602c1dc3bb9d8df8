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
constexpr int64_t kVector = 16;

int64_t divisor_of(const Recipe& recipe) { return recipe.has_blocks() ? recipe.block() : kVector; }

c10::SymInt ceil_div(const c10::SymInt& a, int64_t b) { return (a + (b - 1)) / b; }

// The most blocks that so many rows in groups can have.
c10::SymInt most_blocks(const c10::SymInt& rows, const c10::SymInt& groups, int64_t block) {
  return (rows + groups * (block - 1)) / block;
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

void check_offsets(const char* op, const Tensor& x, const Tensor& offsets) {
  TORCH_CHECK_TYPE(offsets.scalar_type() == at::kInt, "gelu_kernels::", op,
                   ": offsets must be int32, got ", dtype_name(offsets.scalar_type()));
  TORCH_CHECK_TYPE(offsets.layout() == at::kStrided, "gelu_kernels::", op,
                   ": offsets must be a strided tensor, got layout ", offsets.layout());
  TORCH_CHECK_VALUE(offsets.dim() == 1 && offsets.sym_size(0) > 0, "gelu_kernels::", op,
                    ": offsets must be a vector with the end of each group, got shape ",
                    offsets.sym_sizes());
  TORCH_CHECK_VALUE(offsets.device() == x.device(), "gelu_kernels::", op,
                    ": offsets must be on the device of x, ", x.device(), ", got ",
                    offsets.device());
}

constexpr const char* kScalings[] = {"TensorWise", "RowWise", "BlockWise1x128", "BlockWise1x32"};

}  // namespace

std::string_view mode_or_default(std::optional<std::string_view> mode, std::string_view scaling) {
  return mode ? *mode : scaling == "BlockWise1x32" ? "floor" : "amax";
}

Recipe recipe_of(const char* op, const QuantizeOptions& options, const Tensor& x,
                 const OptionalTensor& scale) {
  static constexpr const char* kAlong[] = {"row", "column", "both"};
  static constexpr const char* kModes[] = {"amax", "floor", "rceil"};
  static constexpr const char* kSwizzles[] = {"NO_SWIZZLE", "SWIZZLE_32_4_4"};
  TORCH_CHECK_TYPE(options.dtype == at::kFloat8_e4m3fn || options.dtype == at::kFloat8_e5m2,
                   "gelu_kernels::", op,
                   ": dtype must be torch.float8_e4m3fn or torch.float8_e5m2, got ",
                   dtype_name(options.dtype));
  const auto scaling = static_cast<Scaling>(find_name(op, "scaling", kScalings, options.scaling));
  const size_t along = find_name(op, "along", kAlong, options.along);
  const size_t mode = find_name(op, "mode", kModes, options.mode);
  Recipe recipe{options.dtype,
                scaling,
                along != 1,
                along != 0,
                mode != 0,
                mode == 2,
                find_name(op, "swizzle", kSwizzles, options.swizzle) == 1,
                options.packed,
                std::nullopt};
  const bool is_given = scaling == Scaling::TensorWise;
  TORCH_CHECK_VALUE(!is_given || !recipe.along_columns, "gelu_kernels::", op,
                    ": along must be 'row' for TensorWise, got '", options.along, "'");
  TORCH_CHECK_VALUE(!is_given || !recipe.has_powers, "gelu_kernels::", op,
                    ": mode must be None for TensorWise, whose scale is given, got '", options.mode,
                    "'");
  TORCH_CHECK_VALUE(!recipe.is_mx() || recipe.has_powers, "gelu_kernels::", op,
                    ": mode must be 'floor' or 'rceil' for BlockWise1x32, got 'amax'");
  TORCH_CHECK_VALUE(recipe.is_mx() || !recipe.is_swizzled, "gelu_kernels::", op,
                    ": swizzle must be 'NO_SWIZZLE' for ", options.scaling, ", got '",
                    options.swizzle, "'");
  TORCH_CHECK_VALUE(
      !options.packed || (scaling == Scaling::BlockWise1x128 && recipe.has_powers),
      "gelu_kernels::", op,
      ": packed must be False but for BlockWise1x128 with mode 'floor' or 'rceil', got True for ",
      options.scaling, " with mode '", options.mode, "'");
  TORCH_CHECK_TYPE(x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16,
                   "gelu_kernels::", op, ": x must be float32 or bfloat16, got ",
                   dtype_name(x.scalar_type()));
  TORCH_CHECK_TYPE(x.layout() == at::kStrided, "gelu_kernels::", op,
                   ": x must be a strided tensor, got layout ", x.layout());
  TORCH_CHECK_VALUE(x.dim() > 0, "gelu_kernels::", op,
                    ": x must have a last dimension for the scales, got a 0-d tensor");
  if (options.offsets) {
    check_offsets(op, x, *options.offsets);
    recipe.offsets = options.offsets->contiguous();
  }
  if (is_given) {
    check_scale(op, x, scale);
  } else {
    TORCH_CHECK_VALUE(!scale, "gelu_kernels::", op, ": scale must be None for ", options.scaling,
                      ", which computes its scales");
  }
  return recipe;
}

Recipe gradient_recipe_of(const char* op, const QuantizeOptions& options, const Tensor& x) {
  TORCH_CHECK_VALUE(options.scaling != "TensorWise", "gelu_kernels::", op,
                    ": scaling must be one of 'RowWise' 'BlockWise1x128' 'BlockWise1x32', got "
                    "'TensorWise'");
  return recipe_of(op, options, x);
}

void check_sizes(const char* op, const Recipe& recipe, const Tensor& x,
                 const c10::SymInt& columns) {
  check_multiple(op, "the last dimension of the result", columns, divisor_of(recipe));
  if (recipe.along_columns) {
    // In groups, the last block of each may be shorter.
    check_multiple(op, "the number of rows of x", rows_of(x),
                   recipe.offsets ? kVector : divisor_of(recipe));
  }
}

QuantizedTensors empty_results(const char* op, const Recipe& recipe, const Tensor& x,
                               const c10::SymInt& columns) {
  check_sizes(op, recipe, x, columns);
  const c10::SymInt rows = rows_of(x), groups = recipe.groups();
  const auto empty = [&](at::ScalarType dtype, c10::SymIntArrayRef sizes) {
    Tensor t = at::empty_symint(sizes, x.options().dtype(dtype));
    return t.is_cpu() ? in_huge_pages(std::move(t)) : t;
  };
  const bool is_row_wise = recipe.scaling == Scaling::RowWise;
  // A scale for each row.
  const auto one_of = [&](const c10::SymInt& rows) { return empty(at::kFloat, {rows, 1}); };
  // For a matrix with these rows, and blocks along each of them.
  const auto scales_of = [&](const c10::SymInt& rows, const c10::SymInt& blocks) -> Tensor {
    if (recipe.is_mx()) return empty(at::kFloat8_e8m0fnu, {rows, blocks});
    if (!recipe.is_packed) return empty(at::kFloat, {blocks, rows}).t();
    const c10::SymInt padded = ceil_div(rows, 4) * 4;
    return empty(at::kInt, {ceil_div(blocks, 4), padded}).t().narrow_symint(0, 0, rows);
  };
  const auto swizzled = [&](const c10::SymInt& row_tiles, const c10::SymInt& tiles) {
    return empty(at::kFloat8_e8m0fnu, {row_tiles * 32, tiles * 16});
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
    column_scales = recipe.is_swizzled
                        ? swizzled(ceil_div(columns, 128), most_blocks(rows, groups, 128))
                    : is_row_wise ? recipe.offsets ? scales_of(columns, groups) : one_of(columns)
                                  : scales_of(columns, most_blocks(rows, groups, recipe.block()));
  } else {
    column_data = none();
    column_scales = none();
  }
  if (!recipe.along_rows) return {none(), none(), column_data, column_scales};
  data = empty(recipe.dtype, like_x(columns));
  if (recipe.scaling == Scaling::TensorWise) {
    scales = empty(at::kFloat, {});
  } else if (recipe.is_swizzled) {
    scales = swizzled(most_blocks(rows, groups, 128), ceil_div(columns, 128));
  } else {
    scales = is_row_wise ? one_of(rows) : scales_of(rows, columns / recipe.block());
    scales = scales.view_symint(like_x(scales.sym_size(1)));
  }
  return {data, scales, column_data, column_scales};
}

void clear(const Recipe& recipe, const QuantizedTensors& to) {
  const auto& [data, scales, column_data, column_scales] = to;
  if (recipe.scaling == Scaling::TensorWise) scales.zero_();
  if (recipe.scaling == Scaling::RowWise) {
    if (data.numel() == 0) scales.view(at::kFloat).fill_(FloatScale::least);
    if (column_data.numel() == 0 || recipe.offsets) {
      column_scales.view(at::kFloat).fill_(FloatScale::least);
    }
    return;
  }
  const auto zero_padding = [&](const Tensor& numbers, const Tensor& own, bool has_groups) {
    const int64_t places = own.numel() * (recipe.is_packed ? 4 : 1);
    if (places * recipe.block() <= numbers.numel() && !has_groups) return;
    recipe.is_mx() ? own.view(at::kByte).zero_() : own.zero_();
  };
  if (recipe.is_swizzled || recipe.is_packed) {
    zero_padding(data, scales, recipe.offsets && recipe.is_swizzled);
  }
  if (recipe.is_swizzled || recipe.is_packed || recipe.offsets) {
    zero_padding(column_data, column_scales, recipe.offsets.has_value());
  }
}

Quantization Recipe::quantization() const {
  const uint32_t largest_exponent = is_e5m2() ? e5m2::largest_exponent : e4m3fn::largest_exponent;
  Quantization q = {};
  q.is_e5m2 = is_e5m2();
  q.scaling = scaling;
  q.has_powers = has_powers;
  q.has_exponents = is_mx() || is_packed;
  q.powers = {largest_exponent, rounds_up, is_mx()};
  q.largest = is_e5m2() ? e5m2::largest : e4m3fn::largest;
  q.groups = {nullptr, 1};
  if (has_groups()) {
    q.groups = {offsets->const_data_ptr<int32_t>(), static_cast<int32_t>(offsets->numel())};
  }
  return q;
}

QuantizedResult part_of(const Recipe& recipe, const QuantizedTensors& to, int64_t first_column,
                        int64_t rows) {
  const auto& [data, scales, column_data, column_scales] = to;
  const int64_t columns = recipe.along_rows ? data.size(-1) : column_data.size(0);
  const auto bytes = [](const Tensor& t) { return reinterpret_cast<uint8_t*>(data_of(t)); };
  const auto layout_of = [&](const Tensor& own, int64_t rows, int64_t columns) {
    ScaleLayout layout = {};
    if (recipe.is_swizzled) {
      layout.column_stride = 1;
      layout.stride_of_four = 512;
      layout.tiles = (columns + 127) / 128;
      layout.row_tiles = (rows + 127) / 128;
    } else if (recipe.is_packed) {
      layout.row_stride = 4;
      layout.column_stride = 1;
      layout.stride_of_four = 4 * ((rows + 3) / 4 * 4);
    } else {
      layout.row_stride = recipe.is_mx() ? own.size(-1) : 1;
      layout.column_stride = recipe.is_mx() ? 1 : rows;
      layout.stride_of_four = 4 * layout.column_stride;
    }
    return layout;
  };
  QuantizedResult result = {};
  if (recipe.along_rows) {
    result.rows = {bytes(data) + first_column, columns, data_of(scales),
                   layout_of(scales, rows, columns), nullptr};
    if (recipe.has_blocks()) result.rows.layout.first_column = first_column / recipe.block();
  }
  if (recipe.along_columns) {
    result.columns = {bytes(column_data) + first_column * rows, rows, data_of(column_scales),
                      layout_of(column_scales, columns, rows), nullptr};
    result.columns.layout.first_row = first_column;
  }
  return result;
}

}  // namespace gelu_kernels

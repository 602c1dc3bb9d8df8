// Runs the passes whose results are quantised over tensors.
#pragma once

#include <array>
#include <limits>
#include <vector>

#include "csrc/ops/glu/glu.h"
#include "csrc/ops/quantized/kernels.h"
#include "csrc/ops/quantized/results.h"

namespace gelu_kernels {

inline int64_t rows_of_matrix(const Tensor& x) {
  return x.size(-1) == 0 ? 0 : x.numel() / x.size(-1);
}

// What a pass takes besides its inputs: a bias, or the numbers of a gated linear unit, and for
// TensorWise the scale and where amax goes. Writes dbias if it is given.
struct QuantizedExtras {
  OptionalTensor bias = std::nullopt, weight = std::nullopt;
  std::optional<double> limit = std::nullopt;
  double up_offset = 0;
  OptionalTensor scale = std::nullopt, amax = std::nullopt, dbias = std::nullopt;

  bool is_plain() const { return !weight && !limit && up_offset == 0; }
  void take_scale(const Recipe& recipe, const OptionalTensor& given, const QuantizedTensors& to) {
    scale = given;
    if (recipe.scaling == Scaling::TensorWise) amax = std::get<1>(to);
  }
};

// Memory for the largest magnitudes of rows and columns, where RowWise needs it.
template <class Device, size_t outputs>
std::vector<Tensor> memory_for_amax(const Tensor& like, QuantizedOperands& m) {
  std::vector<Tensor> memory;
  if (!QuantizedKernels<Device>::template needs_amax<static_cast<int>(outputs)>(m)) return memory;
  const auto zeros = [&](int64_t count) {
    memory.push_back(at::zeros({count}, like.options().dtype(at::kInt)));
    return reinterpret_cast<uint32_t*>(data_of(memory.back()));
  };
  auto* const results = m.quantization.results;
  for (size_t k = 0; k < outputs; ++k) {
    auto& [rows, columns] = results[k];
    const bool are_halves = k > 0 && rows.scales == results[0].rows.scales;
    if (rows.data) rows.amax = are_halves ? results[0].rows.amax : zeros(m.rows);
    if (columns.data) columns.amax = zeros(m.quantization.groups.count * m.columns);
  }
  return memory;
}

// Runs a pass over its inputs, matrices of one shape and of the dtype of x. Writes the results to
// `parts`.
template <class Device, size_t outputs, class Pass, class... Inputs>
void write_quantized(const char* op, Pass pass, Gate gate, const Recipe& recipe,
                     const QuantizedExtras& extras,
                     const std::array<QuantizedResult, outputs>& results, const Tensor& first,
                     const Inputs&... rest) {
  using Kernels = QuantizedKernels<Device>;
  const OptionalTensor& dbias = extras.dbias;
  if (recipe.offsets) Kernels::check_ends(op, *recipe.offsets, rows_of_matrix(first));
  if (first.numel() == 0) {
    if (dbias) dbias->zero_();
    return;
  }
  const Tensor own_bias = extras.bias ? Kernels::with_vectors(extras.bias->contiguous()) : Tensor();
  const Tensor own_weight = extras.weight ? extras.weight->contiguous() : Tensor();
  const auto run = [&](int64_t rows, int64_t columns, const auto&... in) {
    QuantizedOperands m = {{in...},
                           extras.bias ? data_of(own_bias) : nullptr,
                           extras.weight ? data_of(own_weight) : nullptr,
                           nullptr,
                           extras.limit.value_or(std::numeric_limits<double>::infinity()),
                           extras.is_plain() ? -0.0 : extras.up_offset,
                           rows,
                           columns,
                           recipe.quantization()};
    if (extras.scale) m.quantization.scale = extras.scale->template const_data_ptr<float>();
    if (extras.amax) m.quantization.amax = extras.amax->template data_ptr<float>();
    std::copy(results.begin(), results.end(), m.quantization.results);
    const std::vector<Tensor> amax = memory_for_amax<Device, outputs>(first, m);
    Tensor partial;
    if (dbias) {
      partial = at::empty({RowBlocks(rows).count, columns}, first.options().dtype(at::kFloat));
      m.partials = data_of(partial);
    }
    Kernels::template run<static_cast<int>(outputs)>(op, pass, gate, first, m);
    if (dbias) {
      Device::add_partial_sums(op, *dbias,
                               {data_of(partial), partial.size(0), columns, data_of(*dbias)});
    }
  };
  with_matrices<0>(first.size(-1), run, Kernels::with_vectors(first),
                   Kernels::with_vectors(rest)...);
}

// The same with one result, all of `to`.
template <class Device, class Pass, class... Inputs>
void write_one(const char* op, Pass pass, Gate gate, const Recipe& recipe,
               const QuantizedExtras& extras, const QuantizedTensors& to, const Tensor& first,
               const Inputs&... rest) {
  clear(recipe, to);
  write_quantized<Device, 1>(op, pass, gate, recipe, extras,
                             {part_of(recipe, to, 0, rows_of_matrix(first))}, first, rest...);
}

// With dx and dup, each all of its own, or the halves of one.
template <class Device>
void write_two(const char* op, Gate gate, const Recipe& recipe, const QuantizedExtras& extras,
               const QuantizedTensors& to_dx, const QuantizedTensors& to_dup, bool are_halves,
               const Tensor& dy, const Tensor& x, const Tensor& up) {
  clear(recipe, to_dx);
  if (!are_halves) clear(recipe, to_dup);
  const int64_t rows = rows_of_matrix(x), first_of_dup = are_halves ? x.size(-1) : 0;
  write_quantized<Device, 2>(
      op, &QuantizedKernels<Device>::Passes::glu_backward, gate, recipe, extras,
      {part_of(recipe, to_dx, 0, rows), part_of(recipe, to_dup, first_of_dup, rows)}, dy, x, up);
}

// A gradient that another operator has computed.
template <class Device>
void write_cast(const char* op, Gate gate, const Recipe& recipe, const QuantizedTensors& to,
                const Tensor& dx) {
  write_one<Device>(op, &QuantizedKernels<Device>::Passes::cast, gate, recipe, {}, to, dx);
}

}  // namespace gelu_kernels

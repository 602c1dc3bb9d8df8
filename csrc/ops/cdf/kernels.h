// A gate with a location and a scale, and the sums that are their gradients, on a device.
//
// The kernels take loc and scale as vectors along the columns of a matrix. Where both are one
// number and the last dimension is too short or too long for that, the elements in row-major order
// are rows of kRow of them, and what is left over is a row by itself.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <array>

#include "csrc/ops/layout.h"

namespace gelu_kernels {

constexpr int64_t kRow = 1024;
// With fewer columns most processors' vectors would have gaps; with more, partial sums would be a
// large part of the data.
constexpr int64_t kLeastColumns = 64, kMostColumns = 16384;

// loc and scale, or their gradients.
using Parameters = std::array<at::Tensor, 2>;

inline bool are_numbers(const Parameters& p) { return p[0].dim() == 0 && p[1].dim() == 0; }

inline bool has_columns(const Parameters& p, const at::Tensor& x) {
  if (!are_numbers(p)) return true;
  return x.dim() > 1 && x.size(-1) >= kLeastColumns && x.size(-1) <= kMostColumns;
}

inline Parameters along(const Parameters& p, int64_t columns) {
  return {p[0].expand({columns}).contiguous(), p[1].expand({columns}).contiguous()};
}

template <class Device>
void map_with_parameters(const char* op, Gate gate, const at::Tensor& loc, const at::Tensor& scale,
                         const at::Tensor& y, const at::Tensor& x) {
  const auto map = [&](const Parameters& p, const at::Tensor& y, const at::Tensor& x) {
    Device::template map<1, 2>(op, &Device::Passes::cdf_forward, gate, std::nullopt, y, x, p[0],
                               p[1]);
  };
  const Parameters p{loc, scale};
  const int64_t elements = x.numel(), rows = elements / kRow, rest = elements % kRow;
  if (elements == 0) return;
  if (!are_numbers(p)) return map(along(p, x.size(-1)), y, x);
  if (!lie_alike(x, y)) return map(has_columns(p, x) ? along(p, x.size(-1)) : p, y, x);
  if (rows == 0) return map(p, y, x);  // so few are quicker this way
  const Parameters vectors = along(p, kRow);
  const auto part = [&](const at::Tensor& t, int64_t first, int64_t rows, int64_t columns) {
    return t.as_strided({rows, columns}, {columns, 1}, t.storage_offset() + first);
  };
  map(vectors, part(y, 0, rows, kRow), part(x, 0, rows, kRow));
  if (rest > 0) map(p, part(y, rows * kRow, 1, rest), part(x, rows * kRow, 1, rest));
}

// dx, and the sums in the order of csrc/gates/column_sums.h. The partial sums of a parameter that
// is one number, over blocks and columns, are summed in the same order as rows of kRow, and then
// the kRow sums of that.
template <class Device>
void sum_parameters(const char* op, Gate gate, const Parameters& parameters, const Parameters& sums,
                    const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x) {
  if (dx.numel() == 0) {
    for (const at::Tensor& sum : sums) sum.zero_();
    return;
  }
  const bool flat = !has_columns(parameters, dx);
  if (flat && !dx.is_contiguous()) {
    const at::Tensor copy = at::empty_like(dx, at::MemoryFormat::Contiguous);
    sum_parameters<Device>(op, gate, parameters, sums, copy, dy, x);
    dx.copy_(copy);
    return;
  }
  const int64_t columns = flat ? kRow : dx.size(-1);
  const int64_t rows = dx.numel() / columns, rest = dx.numel() % columns;
  const int64_t blocks = RowBlocks(rows).count, used = blocks * columns + rest;
  const int64_t padded = (used + kRow - 1) / kRow * kRow;
  const auto dtype = dx.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor partials = at::empty({2, padded}, dx.options().dtype(dtype));
  if (padded > used) partials.narrow(1, used, padded - used).zero_();

  const Parameters vectors = along(parameters, columns);
  const auto kernel = Device::cdf_column_sums(gate, dx);
  const auto sum_rows = [&](int64_t columns, int64_t place, const at::Tensor& dx,
                            const at::Tensor& dy, const at::Tensor& x) {
    const auto partial = [&](int k) {
      return data_of(partials) + (k * padded + place) * partials.element_size();
    };
    // Of a parameter that is one number there are more partial sums.
    const auto sum_of_columns = [&](int k) {
      return sums[k].dim() == 1 ? data_of(sums[k]) : nullptr;
    };
    const auto run = [&](int64_t rows, int64_t columns, Matrix dx_rows, Matrix dy_rows,
                         Matrix x_rows) {
      Device::sum_columns(op, dx, kernel,
                          {dx_rows,
                           dy_rows,
                           x_rows,
                           {data_of(vectors[0]), data_of(vectors[1])},
                           /*mask=*/nullptr,
                           {partial(0), partial(1)},
                           {sum_of_columns(0), sum_of_columns(1)},
                           rows,
                           columns});
    };
    with_matrices(columns, run, dx, dy, x);
  };
  if (!flat) {
    sum_rows(columns, 0, dx, dy, x);
  } else {
    const auto sum_part = [&](int64_t columns, int64_t place, int64_t first, int64_t count) {
      const auto part = [&](const at::Tensor& t) {
        return t.reshape({-1}).narrow(0, first, count);
      };
      if (count > 0) sum_rows(columns, place, part(dx), part(dy), part(x));
    };
    sum_part(kRow, 0, 0, rows * kRow);
    sum_part(rest, blocks * kRow, rows * kRow, rest);
  }

  for (int k = 0; k < 2; ++k) {
    if (sums[k].dim() == 1) continue;
    const char* partial = data_of(partials) + k * padded * partials.element_size();
    const at::Tensor between = at::empty({kRow}, partials.options());
    Device::add_partial_sums(op, between, {partial, padded / kRow, kRow, data_of(between)});
    Device::add_partial_sums(op, sums[k], {data_of(between), kRow, 1, data_of(sums[k])});
  }
}

}  // namespace gelu_kernels

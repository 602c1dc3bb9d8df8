// Compiled once per instruction set; the rules of loops.cpp hold here too.
#include "csrc/cpu/dropout_loops.h"

#include "csrc/cpu/chunks.h"
#include "csrc/cpu/mask_blocks.h"
#include "csrc/gates/pointwise.h"

namespace gelu_kernels::cpu {
namespace {

// The hot loops. n is a multiple of kFlagVector.
template <class Precision, class T, class Real>
void keep(int64_t n, T* __restrict y, uint8_t* __restrict flags, const Real* __restrict value,
          const uint32_t* __restrict words, uint32_t threshold, Real factor) {
  const auto loop = [=]<class Stored>(Stored, int64_t n, auto* __restrict y,
                                      uint8_t* __restrict flags, const Real* __restrict value,
                                      const uint32_t* __restrict words) {
    for (int64_t i = 0; i < n; ++i) {
      const bool m = words[i] >= threshold;
      y[i] = flagged(m, Storage<Stored>::store(as_factor<Precision>(value[i]) * factor));
      flags[i] = m ? kKept : kDropped;
    }
  };
  in_chunks<Precision, kFlagVector>(n, loop, y, flags, value, words);
}
template <class Precision, class T, class Real>
void keep_product(int64_t n, T* __restrict y, uint8_t* __restrict flags,
                  const Real* __restrict value, const T* __restrict up,
                  const uint32_t* __restrict words, uint32_t threshold, Real factor) {
  const auto loop = [=]<class Stored>(Stored, int64_t n, auto* __restrict y,
                                      uint8_t* __restrict flags, const Real* __restrict value,
                                      const auto* __restrict up, const uint32_t* __restrict words) {
    for (int64_t i = 0; i < n; ++i) {
      const bool m = words[i] >= threshold;
      const Real product = as_factor<Precision>(value[i]) * Storage<Stored>::load(up[i]);
      y[i] = flagged(m, Storage<Stored>::store(product * factor));
      flags[i] = m ? kKept : kDropped;
    }
  };
  in_chunks<Precision, kFlagVector>(n, loop, y, flags, value, up, words);
}
template <class Precision, class T, class Real>
void select_gradient(int64_t n, T* __restrict dx, const T* __restrict dy,
                     const Real* __restrict derivative, const uint8_t* __restrict flags,
                     Real factor) {
  const auto loop = [=]<class Stored>(Stored, int64_t n, auto* __restrict dx,
                                      const auto* __restrict dy, const Real* __restrict derivative,
                                      const uint8_t* __restrict flags) {
    for (int64_t i = 0; i < n; ++i) {
      const Real gradient = Storage<Stored>::load(dy[i]) * factor * derivative[i];
      dx[i] = flagged(flags[i], Storage<Stored>::store(gradient));
    }
  };
  in_chunks<Precision, kFlagVector>(n, loop, dx, dy, derivative, flags);
}
template <class Precision, class T, class Real>
void select_up_gradient(int64_t n, T* __restrict dup, const T* __restrict dy,
                        const Real* __restrict value, const uint8_t* __restrict flags,
                        Real factor) {
  const auto loop = [=]<class Stored>(Stored, int64_t n, auto* __restrict dup,
                                      const auto* __restrict dy, const Real* __restrict value,
                                      const uint8_t* __restrict flags) {
    for (int64_t i = 0; i < n; ++i) {
      const Real given = Storage<Stored>::load(dy[i]) * factor;
      const Real gradient = given * as_factor<Precision>(value[i]);
      dup[i] = flagged(flags[i], Storage<Stored>::store(gradient));
    }
  };
  in_chunks<Precision, kFlagVector>(n, loop, dup, dy, value, flags);
}
template <class Precision, class T, class Real>
void select_product_gradient(int64_t n, T* __restrict dx, const T* __restrict dy,
                             const T* __restrict up, const Real* __restrict derivative,
                             const uint8_t* __restrict flags, Real factor) {
  const auto loop = [=]<class Stored>(Stored, int64_t n, auto* __restrict dx,
                                      const auto* __restrict dy, const auto* __restrict up,
                                      const Real* __restrict derivative,
                                      const uint8_t* __restrict flags) {
    using S = Storage<Stored>;
    for (int64_t i = 0; i < n; ++i) {
      const Real product = S::load(dy[i]) * factor * S::load(up[i]);
      dx[i] = flagged(flags[i], S::store(product * derivative[i]));
    }
  };
  in_chunks<Precision, kFlagVector>(n, loop, dx, dy, up, derivative, flags);
}
template <class Precision, class T, class Real>
void add_row(int64_t n, Real* __restrict sum, T* __restrict dx, const T* __restrict dy,
             const Real* __restrict derivative, const uint8_t* __restrict flags, Real factor) {
  const auto loop = [=]<class Stored>(Stored, int64_t n, Real* __restrict sum, auto* __restrict dx,
                                      const auto* __restrict dy, const Real* __restrict derivative,
                                      const uint8_t* __restrict flags) {
    for (int64_t j = 0; j < n; ++j) {
      const Real gradient = Storage<Stored>::load(dy[j]) * factor * derivative[j];
      const Real kept = flagged(flags[j], gradient);
      dx[j] = Storage<Stored>::store(kept);
      sum[j] += kept;
    }
  };
  in_chunks<Precision, kFlagVector>(n, loop, sum, dx, dy, derivative, flags);
}

// The bias of a block of elements in row-major order. Without a bias, -0 is added, which changes no
// number.
template <class Precision>
class Bias {
 public:
  using T = StorageOf<Precision>;

  Bias(const char* bias, int64_t columns)
      : there_(bias != nullptr),
        row_({const_cast<char*>(bias), sizeof(T), 0}, 1, columns, sizeof(T)) {
    for (T& number : buffer_) number = Storage<Precision>::store(-0.0f);
  }
  const T* read(int64_t begin, int64_t n) {
    return there_ ? cpu::read(buffer_, row_, begin, n) : buffer_;
  }

 private:
  bool there_;
  Elements row_;
  T buffer_[kMaskBlock];
};

template <class Precision>
void forward(const DropoutForwardOperands& m, Evaluate evaluate, int64_t begin, int64_t end) {
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;
  const Elements y(m.y, m.rows, m.columns, sizeof(T)), x(m.x, m.rows, m.columns, sizeof(T));
  const Elements up(m.up, m.rows, m.columns, sizeof(T));
  Bias<Precision> bias(m.bias, m.columns);
  T y_buffer[kMaskBlock], x_buffer[kMaskBlock] = {}, up_buffer[kMaskBlock] = {};
  Real value[kMaskBlock];
  uint32_t words[kMaskBlock] = {};
  uint8_t flags[kMaskBlock];
  const PhiloxOctets random(m.seed.get());
  const GlobalIndex index = m.index;
  const uint32_t threshold = m.dropout.threshold;
  const Real factor = m.dropout.factor.as<Real>();
  for (int64_t i = begin; i < end; i += kMaskBlock) {
    const int64_t n = end - i < kMaskBlock ? end - i : kMaskBlock;
    const int64_t padded = round_up(n, kFlagVector);
    draw_words(words, i, n, random, index);
    evaluate(padded, value, nullptr, read(x_buffer, x, i, n), bias.read(i, n));
    T* y_place = in_place<T>(y, i, n);
    T* y_out = y_place ? y_place : y_buffer;
    if (m.up.data) {
      const T* up_in = read(up_buffer, up, i, n);
      keep_product<Precision>(padded, y_out, flags, value, up_in, words, threshold, factor);
    } else {
      keep<Precision>(padded, y_out, flags, value, words, threshold, factor);
    }
    if (!y_place) write(y, y_buffer, i, n);
    for (int64_t p = n; p < padded; ++p) flags[p] = kDropped;
    write_bits(m.mask + i / 8, flags, (n + 7) / 8);
  }
}

template <class Precision, bool kUp>
void backward(const DropoutBackwardOperands& m, Evaluate evaluate, int64_t begin, int64_t end) {
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;
  const auto elements = [&m](const Matrix& of) {
    return Elements(of, m.rows, m.columns, sizeof(T));
  };
  const Elements dx = elements(m.dx), dup = elements(m.dup), dy = elements(m.dy), x = elements(m.x);
  const Elements up = elements(m.up);
  Bias<Precision> bias(m.bias, m.columns);
  T dx_buffer[kMaskBlock], dy_buffer[kMaskBlock] = {}, x_buffer[kMaskBlock] = {};
  T dup_buffer[kUp ? kMaskBlock : 1], up_buffer[kUp ? kMaskBlock : 1] = {};
  Real value[kUp ? kMaskBlock : 1], derivative[kMaskBlock];
  uint8_t flags[kMaskBlock] = {};
  const Real factor = m.factor.as<Real>();
  for (int64_t i = begin; i < end; i += kMaskBlock) {
    const int64_t n = end - i < kMaskBlock ? end - i : kMaskBlock;
    const int64_t padded = round_up(n, kFlagVector);
    read_bits(flags, m.mask + i / 8, (n + 7) / 8);
    evaluate(padded, value, derivative, read(x_buffer, x, i, n), bias.read(i, n));
    const T* dy_in = read(dy_buffer, dy, i, n);
    T* dx_place = in_place<T>(dx, i, n);
    T* dx_out = dx_place ? dx_place : dx_buffer;
    if constexpr (kUp) {
      T* dup_place = in_place<T>(dup, i, n);
      select_up_gradient<Precision>(padded, dup_place ? dup_place : dup_buffer, dy_in, value, flags,
                                    factor);
      if (!dup_place) write(dup, dup_buffer, i, n);
      select_product_gradient<Precision>(padded, dx_out, dy_in, read(up_buffer, up, i, n),
                                         derivative, flags, factor);
    } else {
      select_gradient<Precision>(padded, dx_out, dy_in, derivative, flags, factor);
    }
    if (!dx_place) write(dx, dx_buffer, i, n);
  }
}

template <class Precision>
void backward_column_sums(const ColumnSums& m, Evaluate evaluate, int64_t row, int64_t column,
                          int64_t place, int64_t columns, int64_t rows) {
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;
  Real sum[kRowLanes][kColumnTile] = {}, derivative[kColumnTile];
  T buffer[4][kColumnTile] = {};
  uint8_t flags[kColumnTile + 8] = {};
  const int64_t padded = round_up(columns, kFlagVector);
  const Real factor = m.factor.as<Real>();
  memcpy(buffer[3], m.parameters[0] + column * int64_t{sizeof(T)},
         static_cast<size_t>(columns) * sizeof(T));
  const auto in_place = [&](const Matrix& of) {
    return padded == columns && of.column_stride == int64_t{sizeof(T)};
  };
  const auto row_of_tile = [&](int k, const Matrix& of, int64_t i) {
    const Matrix from = tile_at(of, row + i, column);
    if (in_place(of)) return reinterpret_cast<T*>(from.data);
    if (k > 0) copy<T>(row_of(buffer[k], columns), from, columns, 1);
    return buffer[k];
  };
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t bit = (row + i) * m.columns + column, skipped = bit % 8;
    read_bits(flags, m.mask + bit / 8, (skipped + columns + 7) / 8);
    evaluate(padded, nullptr, derivative, row_of_tile(2, m.x, i), buffer[3]);
    add_row<Precision>(padded, sum[i % kRowLanes], row_of_tile(0, m.dx, i), row_of_tile(1, m.dy, i),
                       derivative, flags + skipped, factor);
    if (!in_place(m.dx)) {
      copy<T>(tile_at(m.dx, row + i, column), row_of(buffer[0], columns), columns, 1);
    }
  }
  for (int lane = 1; lane < kRowLanes; ++lane) {
    for (int64_t j = 0; j < kColumnTile; ++j) sum[0][j] += sum[lane][j];
  }
  memcpy(static_cast<Real*>(m.partials[0]) + place, sum[0],
         static_cast<size_t>(columns) * sizeof(Real));
}

template <class Precision>
constexpr DropoutLoops loops_of() {
  return {forward<Precision>, backward<Precision, false>, backward<Precision, true>,
          backward_column_sums<Precision>};
}

}  // namespace

#define GELU_KERNELS_JOIN(a, b) a##b
#define GELU_KERNELS_DROPOUT(capability) GELU_KERNELS_JOIN(dropout_, capability)

// Indexed by Dtype.
extern const DropoutLoops GELU_KERNELS_DROPOUT(GELU_KERNELS_CAPABILITY)[4];
const DropoutLoops GELU_KERNELS_DROPOUT(GELU_KERNELS_CAPABILITY)[4] = {
    loops_of<fp64>(), loops_of<fp32>(), loops_of<fp16>(), loops_of<bf16>()};

}  // namespace gelu_kernels::cpu

// Compiled once per instruction set; the rules of loops.cpp hold here too.
#include "csrc/cpu/soi_loops.h"

#include "csrc/cpu/chunks.h"
#include "csrc/cpu/mask_blocks.h"
#include "csrc/gates/cdf.h"
#include "csrc/random/bernoulli.h"

namespace gelu_kernels::cpu {
namespace {

// The number from 1 to 65,535 that is nearest to 2^16 F(x). If the first half of an element's
// random bits is below it, x is kept; if it is above, x is dropped. The number itself and the one
// below it leave the decision open, so that an error of almost 1/2 does no harm.
template <class Gate>
GELU_KERNELS_HD int16_t half_threshold(float x) {
  // The greater of two signed integers is one instruction, of two floats it is two.
  const int32_t tail = static_cast<int32_t>(bits(Gate::tail_threshold(x)));
  const int32_t least = static_cast<int32_t>(bits(0x1p16f));
  // For x > 0 the number is 2^16 less the tail's: the low 16 bits of its negative.
  const uint32_t sign = x <= 0 ? 0 : 0x80000000;
  const float threshold = from_bits(static_cast<uint32_t>(tail < least ? least : tail) ^ sign);
  return static_cast<int16_t>(bits(fma(threshold, 0x1p-16f, Format<float>::round_to_integer)));
}

// The hot loops. n is a multiple of kFlagVector. First the argument z of F, then its threshold,
// then the selection: g++ 12 does not vectorise a loop that has all of them.
template <class Precision, class T>
void score(int64_t n, float* __restrict z, const T* __restrict x, const T* __restrict loc,
           const T* __restrict scale) {
  const auto loop = []<class Stored>(Stored, int64_t n, float* __restrict z,
                                     const auto* __restrict x, const auto* __restrict loc,
                                     const auto* __restrict scale) {
    using S = Storage<Stored>;
    for (int64_t i = 0; i < n; ++i) {
      const auto distance = S::load(x[i]) - S::load(loc[i]);
      const auto inverse = inverse_of(bounded(S::load(scale[i])));
      z[i] = static_cast<float>(standard_score(distance, inverse));
    }
  };
  in_chunks<Precision, kVector>(n, loop, z, x, loc, scale);
}
template <class Precision, class T>
void add(int64_t n, float* __restrict z, T* __restrict sum, const T* __restrict x,
         const T* __restrict bias) {
  const auto loop = []<class Stored>(Stored, int64_t n, float* __restrict z, auto* __restrict sum,
                                     const auto* __restrict x, const auto* __restrict bias) {
    using S = Storage<Stored>;
    for (int64_t i = 0; i < n; ++i) {
      const auto unrounded = S::load(x[i]) + S::load(bias[i]);
      z[i] = static_cast<float>(unrounded);
      sum[i] = S::store(unrounded);
    }
  };
  in_chunks<Precision, kVector>(n, loop, z, sum, x, bias);
}
template <class Precision, class T>
void load(int64_t n, float* __restrict z, const T* __restrict x) {
  const auto loop = []<class Stored>(Stored, int64_t n, float* __restrict z,
                                     const auto* __restrict x) {
    for (int64_t i = 0; i < n; ++i) z[i] = static_cast<float>(Storage<Stored>::load(x[i]));
  };
  in_chunks<Precision, kVector>(n, loop, z, x);
}
// The thresholds have a sign, since numbers of 16 bits without one are float16 to in_chunks().
template <class Gate, class Precision, class T>
void half_thresholds(int64_t n, int16_t* __restrict thresholds, const T* __restrict z) {
  const auto loop = []<class Stored>(Stored, int64_t n, int16_t* __restrict thresholds,
                                     const auto* __restrict z) {
#pragma GCC unroll kUnroll
    for (int64_t i = 0; i < n; ++i) {
      thresholds[i] = half_threshold<Gate>(static_cast<float>(Storage<Stored>::load(z[i])));
    }
  };
  in_chunks<Precision, kVector>(n, loop, thresholds, z);
}
// Decides by the first halves of the random bits. Returns whether any element is left open. x is
// copied bit by bit, NaN payloads included.
template <class T>
bool select(int64_t n, T* __restrict y, uint8_t* __restrict flags, const T* __restrict x,
            const int16_t* __restrict thresholds, const uint16_t* __restrict halves) {
  n &= ~(kFlagVector - 1);
  uint16_t open = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t threshold = static_cast<uint16_t>(thresholds[i]);
    const bool m = halves[i] < threshold;
    // The differences 0 and 1 leave the decision open.
    const uint16_t place = static_cast<uint16_t>(halves[i] - (threshold - 1));
    open |= place < 2 ? 1 : 0;
    y[i] = flagged(m, x[i]);
    flags[i] = m ? kKept : kDropped;
  }
  return open != 0;
}
// Decides by all random bits.
template <class Gate, class T>
void select_exactly(int64_t n, T* __restrict y, uint8_t* __restrict flags, const T* __restrict x,
                    const float* __restrict z, const uint32_t* __restrict words) {
  n &= ~(kFlagVector - 1);
  for (int64_t i = 0; i < n; ++i) {
    const bool m = bernoulli<Gate>(z[i], words[i]);
    y[i] = flagged(m, x[i]);
    flags[i] = m ? kKept : kDropped;
  }
}
template <class T>
void select_flagged(int64_t n, T* __restrict dx, const T* __restrict dy,
                    const uint8_t* __restrict flags) {
  n &= ~(kFlagVector - 1);
  for (int64_t i = 0; i < n; ++i) dx[i] = flagged(flags[i], dy[i]);
}

template <class Gate, class Precision, bool kParameters>
void forward(const SoiForwardOperands& m, int64_t begin, int64_t end) {
  using T = StorageOf<Precision>;
  const Elements y(m.y, m.rows, m.columns, sizeof(T)), x(m.x, m.rows, m.columns, sizeof(T));
  const Elements bias({const_cast<char*>(m.bias), sizeof(T), 0}, 1, m.columns, sizeof(T));
  const Elements loc(m.loc, 1, m.columns, sizeof(T)), scale(m.scale, 1, m.columns, sizeof(T));
  T y_buffer[kMaskBlock], x_buffer[kMaskBlock] = {}, sum[kMaskBlock];
  float z[kMaskBlock];
  int16_t thresholds[kMaskBlock];
  T column_buffers[kParameters ? 2 : 1][kMaskBlock] = {};
  uint16_t halves[kMaskBlock + kDrawn] = {};
  uint32_t words[kMaskBlock] = {};
  uint8_t flags[kMaskBlock];
  const PhiloxOctets random(m.seed.get());
  const GlobalIndex index = m.index;
  uint8_t* const mask = m.mask;
  for (int64_t i = begin; i < end; i += kMaskBlock) {
    const int64_t n = end - i < kMaskBlock ? end - i : kMaskBlock;
    const int64_t padded = round_up(n, kFlagVector);
    const T* x_in = read(x_buffer, x, i, n);
    T* y_place = in_place<T>(y, i, n);
    T* y_out = y_place ? y_place : y_buffer;
    if constexpr (kParameters) {
      // A scalar fills the buffer in the first block, which is the longest.
      const auto parameter = [&](T* buffer, const Elements& e) -> const T* {
        return e.matrix.column_stride == 0 && i > begin ? buffer : read(buffer, e, i, n);
      };
      score<Precision>(padded, z, x_in, parameter(column_buffers[0], loc),
                       parameter(column_buffers[1], scale));
    } else if (m.bias) {
      add<Precision>(padded, z, sum, x_in, read(column_buffers[0], bias, i, n));
      x_in = sum;
    }
    const bool alone = !kParameters && !m.bias;
    if (alone) {
      half_thresholds<Gate, Precision>(padded, thresholds, x_in);
    } else {
      half_thresholds<Gate, fp32>(padded, thresholds, z);
    }
    draw<0>(halves, i, n, random, index);
    // About one block in 60 has an element that the first halves leave open.
    if (select(padded, y_out, flags, x_in, thresholds, halves)) {
      if (alone) load<Precision>(padded, z, x_in);
      draw_words(words, i, n, random, index);
      select_exactly<Gate>(padded, y_out, flags, x_in, z, words);
    }
    if (!y_place) write(y, y_buffer, i, n);
    for (int64_t p = n; p < padded; ++p) flags[p] = kDropped;
    write_bits(mask + i / 8, flags, (n + 7) / 8);
  }
}

template <class T>
void backward(const SoiBackwardOperands& m, int64_t begin, int64_t end) {
  const Elements dx(m.dx, m.rows, m.columns, sizeof(T)), dy(m.dy, m.rows, m.columns, sizeof(T));
  T dx_buffer[kMaskBlock], dy_buffer[kMaskBlock] = {};
  uint8_t flags[kMaskBlock] = {};
  for (int64_t i = begin; i < end; i += kMaskBlock) {
    const int64_t n = end - i < kMaskBlock ? end - i : kMaskBlock;
    read_bits(flags, m.mask + i / 8, (n + 7) / 8);
    T* dx_place = in_place<T>(dx, i, n);
    select_flagged(round_up(n, kFlagVector), dx_place ? dx_place : dx_buffer,
                   read(dy_buffer, dy, i, n), flags);
    if (!dx_place) write(dx, dx_buffer, i, n);
  }
}

template <class Precision, class T>
void add_row(int64_t n, typename Precision::Real* __restrict sum, T* __restrict dx,
             const T* __restrict dy, const uint8_t* __restrict flags) {
  n &= ~(kFlagVector - 1);
  for (int64_t j = 0; j < n; ++j) {
    dx[j] = flagged(flags[j], dy[j]);
    sum[j] += Storage<Precision>::load(dx[j]);
  }
}

template <class Precision>
void backward_column_sums(const ColumnSums& m, int64_t row, int64_t column, int64_t place,
                          int64_t columns, int64_t rows) {
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;
  Real sum[kRowLanes][kColumnTile] = {};
  T dx_row[kColumnTile], dy_row[kColumnTile] = {};
  uint8_t flags[kColumnTile + 8] = {};
  const Matrix dx = tile_at(m.dx, row, column), dy = tile_at(m.dy, row, column);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t bit = (row + i) * m.columns + column, skipped = bit % 8;
    read_bits(flags, m.mask + bit / 8, (skipped + columns + 7) / 8);
    copy<T>(row_of(dy_row, columns), tile_at(dy, i, 0), columns, 1);
    add_row<Precision>(round_up(columns, kFlagVector), sum[i % kRowLanes], dx_row, dy_row,
                       flags + skipped);
    copy<T>(tile_at(dx, i, 0), row_of(dx_row, columns), columns, 1);
  }
  for (int lane = 1; lane < kRowLanes; ++lane) {
    for (int64_t j = 0; j < kColumnTile; ++j) sum[0][j] += sum[lane][j];
  }
  memcpy(static_cast<Real*>(m.partials[0]) + place, sum[0],
         static_cast<size_t>(columns) * sizeof(Real));
}

template <class Gate>
void count_in_tail(uint32_t* counts, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t count = 0;
    for (uint32_t bit = uint32_t{1} << 31; bit != 0; bit >>= 1) {
      const uint32_t more = count | bit;
      if (Gate::in_tail(x[i], static_cast<float>(more - 1))) count = more;
    }
    counts[i] = count;
  }
}

template <class Gate, class Precision>
constexpr SoiLoops loops_of() {
  return {forward<Gate, Precision, false>, forward<Gate, Precision, true>,
          backward<StorageOf<Precision>>, backward_column_sums<Precision>, count_in_tail<Gate>};
}

}  // namespace

#define GELU_KERNELS_JOIN(a, b) a##b
#define GELU_KERNELS_SOI(capability) GELU_KERNELS_JOIN(soi_, capability)

// Indexed by Gate, then Dtype.
extern const SoiLoops GELU_KERNELS_SOI(GELU_KERNELS_CAPABILITY)[][4];
const SoiLoops GELU_KERNELS_SOI(GELU_KERNELS_CAPABILITY)[][4] = {
#define GELU_KERNELS_LOOPS(name, Type, ...) \
  {loops_of<Type, fp64>(), loops_of<Type, fp32>(), loops_of<Type, fp16>(), loops_of<Type, bf16>()},
    GELU_KERNELS_FOR_EACH_GATE(GELU_KERNELS_LOOPS)
#undef GELU_KERNELS_LOOPS
};

}  // namespace gelu_kernels::cpu

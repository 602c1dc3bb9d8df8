// Compiled once per instruction set; the rules of loops.cpp hold here too.
#include "csrc/cpu/quantize_loops.h"

#include <atomic>
#include <cstring>
#include <type_traits>

#include "csrc/gates/storage.h"

namespace gelu_kernels::cpu {
namespace {

// The magnitude of a stored number as a signed integer, for which every instruction set has a
// maximum, and the shift that makes a float's bits of it.
template <class T>
using Magnitude = std::conditional_t<sizeof(T) == 2, int16_t, int32_t>;
template <class T>
constexpr int kShift = 8 * (4 - sizeof(T));

template <class T>
Magnitude<T> magnitude_of(T stored) {
  Magnitude<T> bits;
  memcpy(&bits, &stored, sizeof bits);
  return static_cast<Magnitude<T>>(bits & (sizeof(T) == 2 ? 0x7fff : 0x7fffffff));
}

// Goes in steps of n, so that the compiler knows the number of vectors.
template <int n, class T>
uint32_t largest(const T* __restrict y, int64_t columns) {
  Magnitude<T> most[n] = {};
  for (int64_t i = 0; i < columns; i += n) {
    for (int j = 0; j < n; ++j) {
      const Magnitude<T> m = magnitude_of(y[i + j]);
      most[j] = most[j] < m ? m : most[j];
    }
  }
  Magnitude<T> of_all = 0;
  for (int j = 0; j < n; ++j) of_all = of_all < most[j] ? most[j] : of_all;
  return static_cast<uint32_t>(of_all) << kShift<T>;
}

template <class T>
uint32_t largest_of_row(const T* y, int64_t columns) {
  const int64_t whole = columns & ~int64_t{63};
  const uint32_t of_whole = largest<64>(y, whole),
                 of_rest = largest<16>(y + whole, columns - whole);
  return of_whole < of_rest ? of_rest : of_whole;
}

// Multiplies each number by its own factor. A vector of bytes has 64 numbers; shorter steps take
// two to four times as long.
constexpr int64_t kBytesOfVector = 64;
template <class Precision, class Format, bool may_be_nan, class T>
void store(uint8_t* __restrict to, const T* __restrict y, const float* __restrict inverse,
           int64_t columns) {
  const auto number = [=](int64_t j) {
    return to_float8<Format, may_be_nan>(Storage<Precision>::load(y[j]) * inverse[j]);
  };
  const int64_t whole = columns & ~(kBytesOfVector - 1);
  for (int64_t j = 0; j < whole; ++j) to[j] = number(j);
  for (int64_t i = whole; i < columns; i += 16) {
    for (int j = 0; j < 16; ++j) to[i + j] = number(i + j);
  }
}

// If all numbers and factors are finite, no product is NaN.
template <class Precision, class Format, class T>
void store(uint8_t* to, const T* y, const float* inverse, int64_t columns, bool is_finite) {
  is_finite ? store<Precision, Format, false>(to, y, inverse, columns)
            : store<Precision, Format, true>(to, y, inverse, columns);
}
constexpr uint32_t kInfinity = 0x7f800000;

// This many columns of a row are quantised at a time, with their factors in an array.
constexpr int64_t kPiece = 512;

// Quantises with one factor.
template <class Precision, class Format, class T>
void store_row(uint8_t* to, const T* y, float inverse, int64_t columns, uint32_t largest) {
  const bool is_finite = largest < kInfinity && inverse == inverse;
  float all[kPiece];
  for (float& each : all) each = inverse;
  for (int64_t j = 0; j < columns; j += kPiece) {
    const int64_t width = columns - j < kPiece ? columns - j : kPiece;
    store<Precision, Format>(to + j, y + j, all, width, is_finite);
  }
}

// Quantises with a factor per block: `inverse_of` writes a block's scale, computed from its largest
// magnitude, and returns the factor.
template <class Precision, class Format, int64_t block, class T, class InverseOf>
void store_blocks(uint8_t* to, const T* y, int64_t columns, const InverseOf& inverse_of) {
  for (int64_t i = 0; i < columns; i += kPiece) {
    const int64_t width = columns - i < kPiece ? columns - i : kPiece;
    float inverse[kPiece];
    uint32_t most = 0;
    for (int64_t j = 0; j < width; j += block) {
      const uint32_t own = largest<32>(y + i + j, block);
      const float of_block = inverse_of(i + j, own);
      most = most < own ? own : most;
      for (int64_t k = 0; k < block; ++k) inverse[j + k] = of_block;
    }
    store<Precision, Format>(to + i, y + i, inverse, width, most < kInfinity);
  }
}

// The scale for a largest magnitude, and the factor of its numbers.
template <class Format>
struct Scale {
  float value, inverse;
  uint32_t exponent = 0;

  Scale(const Quantization& q, uint32_t amax) {
    if (q.has_powers) {
      exponent = q.powers.scale_of(amax);
      value = PowersOfTwo::value_of(exponent);
      inverse = q.powers.inverse_of(exponent);
    } else {
      const FloatScale own(from_bits(amax), Format::largest);
      value = own.scale;
      inverse = own.inverse;
    }
  }
  void store(const Quantization& q, char* scales, int64_t place) const {
    if (q.has_exponents) {
      scales[place] = static_cast<char>(exponent);
    } else {
      reinterpret_cast<float*>(scales)[place] = value;
    }
  }
};

template <class Precision, class Format>
uint32_t quantize_rows(const Quantization& q, const QuantizedMatrix& to, const QuantizeTile& tile) {
  using T = StorageOf<Precision>;
  uint32_t amax = 0;
  const float given = q.scaling == Scaling::TensorWise ? inverse_of_given(*q.scale) : 0;
  const ScaleLayout layout = to.layout.of_rows(tile.group);
  for (int64_t i = 0; i < tile.rows; ++i) {
    const T* y = reinterpret_cast<const T*>(tile.y) + i * tile.columns;
    const int64_t row = tile.row + i;
    uint8_t* data = to.data + row * to.row_stride + tile.column;
    const auto in_blocks = [&](auto block) {
      store_blocks<Precision, Format, block.value>(
          data, y, tile.columns, [&](int64_t column, uint32_t largest) {
            const Scale<Format> own(q, largest);
            own.store(q, to.scales, layout.place(row, (tile.column + column) / block.value));
            return own.inverse;
          });
    };
    switch (q.scaling) {
      case Scaling::TensorWise: {
        const uint32_t of_row = largest_of_row(y, tile.columns);
        amax = amax < of_row ? of_row : amax;
        store_row<Precision, Format>(data, y, given, tile.columns, of_row);
        break;
      }
      case Scaling::RowWise: {
        const uint32_t of_row = to.amax ? to.amax[row] : largest_of_row(y, tile.columns);
        const Scale<Format> own(q, of_row);
        if (tile.column == 0) own.store(q, to.scales, layout.place<int64_t>(row, 0));
        store_row<Precision, Format>(data, y, own.inverse, tile.columns, of_row);
        break;
      }
      case Scaling::BlockWise1x128:
        in_blocks(std::integral_constant<int64_t, kFloatBlock>());
        break;
      case Scaling::BlockWise1x32:
        in_blocks(std::integral_constant<int64_t, kMxBlock>());
    }
  }
  return amax;
}

using Bytes = uint8_t __attribute__((vector_size(16)));

// Four rounds that each deal the rows of the first half and of the second out in turn, byte by
// byte, transpose 16 rows of 16.
void transpose_16(Bytes (&rows)[16]) {
  for (int round = 0; round < 4; ++round) {
    Bytes dealt[16];
    for (int i = 0; i < 8; ++i) {
      const Bytes a = rows[i], b = rows[i + 8];
      dealt[2 * i] =
          __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      dealt[2 * i + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29,
                                                 14, 30, 15, 31);
    }
    memcpy(rows, dealt, sizeof dealt);
  }
}

// to[j][i] = from[i][j]; each row of `to` is kMostQuantizedRows long.
void transpose_block(uint8_t* to, const uint8_t (&from)[kMxBlock][kBytesOfVector],
                     int64_t columns) {
  for (int i = 0; i < kMxBlock; i += 16) {
    for (int j = 0; j < columns; j += 16) {
      Bytes rows[16];
      for (int k = 0; k < 16; ++k) memcpy(&rows[k], &from[i + k][j], 16);
      transpose_16(rows);
      for (int k = 0; k < 16; ++k) memcpy(to + (j + k) * kMostQuantizedRows + i, &rows[k], 16);
    }
  }
}

// In up to kBytesOfVector columns.
template <class T>
void largest_of_columns(uint32_t* __restrict amax, const T* __restrict y, int64_t row_length,
                        int64_t rows, int64_t columns) {
  columns &= ~int64_t{15};
  Magnitude<T> most[kBytesOfVector] = {};
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const Magnitude<T> m = magnitude_of(y[i * row_length + j]);
      most[j] = most[j] < m ? m : most[j];
    }
  }
  for (int64_t j = 0; j < columns; ++j) amax[j] = static_cast<uint32_t>(most[j]) << kShift<T>;
}

// Quantises up to kBytesOfVector columns of up to kMostQuantizedRows rows, each column by its
// factor, and transposes them.
template <class Precision, class Format, class T>
void store_columns(uint8_t* __restrict to, const T* y, int64_t row_length, int64_t rows,
                   int64_t columns, const float* inverse, bool is_finite) {
  columns &= ~int64_t{15};
  for (int64_t i = 0; i < rows; i += kMxBlock) {
    uint8_t numbers[kMxBlock][kBytesOfVector];
    const int64_t end = rows - i < kMxBlock ? rows - i : kMxBlock;
    for (int64_t k = 0; k < end; ++k) {
      store<Precision, Format>(numbers[k], y + (i + k) * row_length, inverse, columns, is_finite);
    }
    for (int64_t k = end; k < kMxBlock; ++k) memset(numbers[k], 0, sizeof numbers[k]);
    transpose_block(to + i, numbers, columns);
  }
}

template <class Precision, class Format>
void quantize_columns(const Quantization& q, const QuantizedMatrix& to, const QuantizeTile& tile) {
  using T = StorageOf<Precision>;
  const ScaleLayout layout = to.layout.of_columns(tile.group);
  const bool is_row_wise = q.scaling == Scaling::RowWise;
  const int64_t block = q.scaling == Scaling::BlockWise1x32 ? kMxBlock : kFloatBlock;
  const int64_t first_row = tile.row - tile.group.begin;
  for (int64_t j = 0; j < tile.columns; j += kBytesOfVector) {
    const int64_t width = tile.columns - j < kBytesOfVector ? tile.columns - j : kBytesOfVector;
    uint8_t columns[kBytesOfVector][kMostQuantizedRows];
    for (int64_t i = 0; i < tile.rows; i += block) {
      const int64_t rows = tile.rows - i < block ? tile.rows - i : block;
      const T* y = reinterpret_cast<const T*>(tile.y) + i * tile.columns + j;
      uint32_t amax[kBytesOfVector], most = 0;
      if (is_row_wise) {
        memcpy(amax, to.amax + tile.group.first_block * tile.all_columns + tile.column + j,
               width * sizeof *amax);
      } else {
        largest_of_columns(amax, y, tile.columns, rows, width);
      }
      float inverse[kBytesOfVector];
      for (int64_t k = 0; k < width; ++k) {
        const Scale<Format> own(q, amax[k]);
        inverse[k] = own.inverse;
        most = most < amax[k] ? amax[k] : most;
        if (is_row_wise && first_row + i > 0) continue;  // only the column's first tile writes it
        own.store(q, to.scales, layout.place(tile.column + j + k, (first_row + i) / block));
      }
      store_columns<Precision, Format>(&columns[0][i], y, tile.columns, rows, width, inverse,
                                       most < kInfinity);
    }
    for (int64_t k = 0; k < width; ++k) {
      memcpy(to.data + (tile.column + j + k) * to.row_stride + tile.row, columns[k],
             static_cast<size_t>(tile.rows));
    }
  }
}

// Other threads have other tiles of the same rows and columns.
void raise(uint32_t& amax, uint32_t found) {
  const std::atomic_ref<uint32_t> all(amax);
  uint32_t before = all.load(std::memory_order_relaxed);
  while (before < found && !all.compare_exchange_weak(before, found, std::memory_order_relaxed)) {
  }
}

template <class T>
void add_amax(const QuantizedResult& to, const QuantizeTile& tile) {
  const T* const y = reinterpret_cast<const T*>(tile.y);
  for (int64_t i = 0; to.rows.amax && i < tile.rows; ++i) {
    raise(to.rows.amax[tile.row + i], largest_of_row(y + i * tile.columns, tile.columns));
  }
  for (int64_t j = 0; to.columns.amax && j < tile.columns; j += kBytesOfVector) {
    const int64_t width = tile.columns - j < kBytesOfVector ? tile.columns - j : kBytesOfVector;
    uint32_t found[kBytesOfVector];
    largest_of_columns(found, y + j, tile.columns, tile.rows, width);
    uint32_t* const amax =
        to.columns.amax + tile.group.first_block * tile.all_columns + tile.column + j;
    for (int64_t k = 0; k < width; ++k) raise(amax[k], found[k]);
  }
}

template <class Precision, class Format>
constexpr QuantizeLoops loops_of() {
  return {quantize_rows<Precision, Format>, quantize_columns<Precision, Format>,
          add_amax<StorageOf<Precision>>};
}

}  // namespace

#define GELU_KERNELS_JOIN(a, b) a##b
#define GELU_KERNELS_NAME(capability) GELU_KERNELS_JOIN(quantize_, capability)

// Indexed by whether the numbers are bfloat16, not float32, and whether they become e5m2.
extern const QuantizeLoops GELU_KERNELS_NAME(GELU_KERNELS_CAPABILITY)[2][2];
const QuantizeLoops GELU_KERNELS_NAME(GELU_KERNELS_CAPABILITY)[2][2] = {
    {loops_of<fp32, e4m3fn>(), loops_of<fp32, e5m2>()},
    {loops_of<bf16, e4m3fn>(), loops_of<bf16, e5m2>()},
};

}  // namespace gelu_kernels::cpu

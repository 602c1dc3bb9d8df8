// Compiled once per instruction set; the rules of loops.cpp hold here too.
#include "csrc/cpu/quantize_loops.h"

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

template <class Precision, class Format>
uint32_t quantize_rows(const Quantization& q, const QuantizedMatrix& to, const QuantizeTile& tile) {
  using T = StorageOf<Precision>;
  uint32_t amax = 0;
  const float given = q.scaling == Scaling::TensorWise ? inverse_of_given(*q.scale) : 0;
  float* const floats = reinterpret_cast<float*>(to.scales);
  for (int64_t i = 0; i < tile.rows; ++i) {
    const T* y = reinterpret_cast<const T*>(tile.y) + i * tile.columns;
    const int64_t row = tile.row + i;
    uint8_t* data = to.data + row * to.row_stride + tile.column;
    const auto place = [&](int64_t column, int64_t block) {
      return to.layout.place(row, (tile.column + column) / block);
    };
    switch (q.scaling) {
      case Scaling::TensorWise: {
        const uint32_t of_row = largest_of_row(y, tile.columns);
        amax = amax < of_row ? of_row : amax;
        store_row<Precision, Format>(data, y, given, tile.columns, of_row);
        break;
      }
      case Scaling::RowWise: {
        const uint32_t of_row = largest_of_row(y, tile.columns);
        const FloatScale own(from_bits(of_row), Format::largest);
        floats[place(0, tile.columns)] = own.scale;
        store_row<Precision, Format>(data, y, own.inverse, tile.columns, of_row);
        break;
      }
      case Scaling::BlockWise1x128:
        store_blocks<Precision, Format, kFloatBlock>(
            data, y, tile.columns, [&](int64_t column, uint32_t largest) {
              const FloatScale own(from_bits(largest), Format::largest);
              floats[place(column, kFloatBlock)] = own.scale;
              return own.inverse;
            });
        break;
      case Scaling::BlockWise1x32:
        store_blocks<Precision, Format, kMxBlock>(
            data, y, tile.columns, [&](int64_t column, uint32_t largest) {
              const uint32_t s = q.blocks.scale_of(largest);
              to.scales[place(column, kMxBlock)] = static_cast<char>(s);
              return q.blocks.inverse_of(s);
            });
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

// 32 or 64 columns of a block of rows.
template <class Precision, class Format, class T>
void quantize_block(const BlockScaling& blocks, const T* __restrict y, int64_t row_length,
                    int64_t columns, uint8_t* __restrict scales,
                    uint8_t (&numbers)[kMxBlock][kBytesOfVector]) {
  columns &= ~(kMxBlock - 1);
  Magnitude<T> most[kBytesOfVector] = {};
  for (int i = 0; i < kMxBlock; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const Magnitude<T> m = magnitude_of(y[i * row_length + j]);
      most[j] = most[j] < m ? m : most[j];
    }
  }
  float inverse[kBytesOfVector];
  Magnitude<T> of_all = 0;
  for (int j = 0; j < kBytesOfVector; ++j) of_all = of_all < most[j] ? most[j] : of_all;
  const bool is_finite = static_cast<uint32_t>(of_all) << kShift<T> < kInfinity;
  for (int j = 0; j < kBytesOfVector; ++j) {
    const uint32_t s = blocks.scale_of(static_cast<uint32_t>(most[j]) << kShift<T>);
    scales[j] = static_cast<uint8_t>(s);
    inverse[j] = blocks.inverse_of(s);
  }
  for (int i = 0; i < kMxBlock; ++i) {
    store<Precision, Format>(numbers[i], y + i * row_length, inverse, columns, is_finite);
  }
}

template <class Precision, class Format>
void quantize_columns(const Quantization& q, const QuantizedMatrix& to, const QuantizeTile& tile) {
  using T = StorageOf<Precision>;
  for (int64_t j = 0; j < tile.columns; j += kBytesOfVector) {
    const int64_t width = tile.columns - j < kBytesOfVector ? tile.columns - j : kBytesOfVector;
    uint8_t columns[kBytesOfVector][kMostQuantizedRows];
    for (int64_t i = 0; i < tile.rows; i += kMxBlock) {
      uint8_t scales[kBytesOfVector], numbers[kMxBlock][kBytesOfVector];
      const T* y = reinterpret_cast<const T*>(tile.y) + i * tile.columns + j;
      quantize_block<Precision, Format>(q.blocks, y, tile.columns, width, scales, numbers);
      transpose_block(&columns[0][i], numbers, width);
      const int64_t block = (tile.row + i) / kMxBlock;
      for (int64_t k = 0; k < width; ++k) {
        to.scales[to.layout.place(tile.column + j + k, block)] = static_cast<char>(scales[k]);
      }
    }
    for (int64_t k = 0; k < width; ++k) {
      memcpy(to.data + (tile.column + j + k) * to.row_stride + tile.row, columns[k],
             static_cast<size_t>(tile.rows));
    }
  }
}

template <class Precision, class Format>
constexpr QuantizeLoops loops_of() {
  return {quantize_rows<Precision, Format>, quantize_columns<Precision, Format>};
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

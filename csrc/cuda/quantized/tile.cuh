// A tile of 32 rows that a warp quantises: a lane has the columns of one vector in 8 of the rows,
// and 8 lanes are side by side. The numbers are in its registers, rounded.
#pragma once

#include "csrc/cuda/quantized/float8.h"
#include "csrc/cuda/quantized/groups.h"
#include "csrc/cuda/quantized/magnitudes.h"
#include "csrc/cuda/tuning.h"
#include "csrc/gates/quantized.h"

namespace gelu_kernels::cuda {

// Tiles, in blocks of threads that are small: rows that a lane loads before it computes, all of its
// eight where the registers are enough, and blocks that a processor is to have room for, as many as
// spill next to nothing. `converts` says that eight bits take no integer code. By a model that was
// fitted to an H200, % of a copy's speed, in place of blocks of 8 warps and half of the rows:
// bfloat16 GLU forward 97 (85), backward 95 (75), GLU backward 91 (72). None of it was measured.
constexpr int kTileWarps = 4;
constexpr int kTileThreads = kTileWarps * kWarp;
constexpr int quantized_tile_rows(int inputs, int size, bool converts) {
  return inputs == 3 && size == 8 && !converts ? 2 : 8;
}
constexpr int quantized_tile_blocks_per_processor(int inputs, int size, int columns, bool converts,
                                                  bool has_pairs) {
  if (size == 8 && inputs > 1) return !converts ? 3 : inputs == 2 && columns == 0 ? 5 : 4;
  if (size == 8) return !converts || has_pairs ? 4 : columns == 1 ? 6 : 7;
  return inputs == 1 ? 8 : inputs == 2 ? 5 : 4;
}

constexpr int kTileRows = 32, kLogTileRows = 5;
constexpr int kTileLanes = 8;                    // side by side
constexpr int kTileGroups = kWarp / kTileLanes;  // of lanes, below each other
constexpr int kLaneRows = kTileRows / kTileGroups;

// The address `count` strides after `from`, in one instruction. The stride is in units of `unit`
// bytes, and the compiler does not see that the addresses form a chain.
template <int unit, class T>
__device__ __forceinline__ T* advance(T* from, uint32_t stride, int count) {
  uint64_t bytes;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(bytes) : "r"(stride), "r"(count * unit));
  return from + bytes;
}
// The same address in registers: else the compiler adds a kernel's parameter to each address that
// advance() gives, in two instructions more. For compute capability 10.0 it would split 16 bytes
// that are loaded from there.
template <class T>
__device__ __forceinline__ T* as_base(T* address) {
#if __CUDA_ARCH__ < 1000
  asm("" : "+l"(address));
  __builtin_assume(__isGlobal(address));
#endif
  return address;
}

// Where a lane is: the tile's first row, and the lane's first column and first row in the tile.
struct Lane {
  int lane, group;
  uint32_t row, column;
  int first;
  int rows;                 // that the tile has; none where the column is not there
  bool is_whole;            // the tile, for all lanes: they go the same way
  RowGroup* group_of_rows;  // in shared memory, if there are groups

  // f(i) for the rows that are there, and otherwise(i) for the others.
  template <int begin, int end, class F, class Otherwise>
  __device__ __forceinline__ void for_rows(F f, Otherwise otherwise) const {
    const int left = rows - first;
    if (is_whole) {
#pragma unroll
      for (int i = begin; i < end; ++i) f(i);
    } else {
#pragma unroll
      for (int i = begin; i < end; ++i) left > i ? f(i) : otherwise(i);
    }
  }
  template <class F>
  __device__ __forceinline__ void for_rows(F f) const {
    for_rows<0, kLaneRows>(f, [](int) {});
  }
};

template <class Precision>
struct QuantizedTile {
  using V = Vector<Precision>;
  using M = Magnitudes<Precision>;
  using Rounded = V[kLaneRows];
  using RowBytes = Bytes<Precision>[kLaneRows];
  static constexpr int size = V::size, per_word = M::per_word;
  using ColumnBytes = uint2[size];  // eight rows of each column
  static constexpr int columns = kTileLanes * size;
  static constexpr int words = size / per_word;           // of a vector, always 4
  static constexpr int row_words = kLaneRows / per_word;  // for a number of each of the rows
  static constexpr int block_lanes = kMxBlock / size;     // side by side in an MX block
  static_assert(row_words == block_lanes && words == kTileGroups);

  static __device__ __forceinline__ uint32_t word_of(const V& v, int k) {
    return k == 0 ? v.words.x : k == 1 ? v.words.y : k == 2 ? v.words.z : v.words.w;
  }

  // Where the scale of a row's block goes.
  static __device__ __forceinline__ int64_t place_of_row(const Quantization& q,
                                                         const QuantizedMatrix& m, const Lane& t,
                                                         uint32_t row, uint32_t block) {
    if (!q.groups.ends) return m.layout.place(row, block);
    return m.layout.of_rows(*t.group_of_rows).place(row, block);
  }
  // Likewise of the block of a column that has the tile's rows: blocks have 1 << log_rows.
  static __device__ __forceinline__ int64_t place_of_column(const Quantization& q,
                                                            const QuantizedMatrix& m, const Lane& t,
                                                            uint32_t column, int log_rows) {
    if (!q.groups.ends) return m.layout.place(column, t.row >> log_rows);
    const RowGroup& group = *t.group_of_rows;
    const uint32_t row = t.row - static_cast<uint32_t>(group.begin);
    return m.layout.of_columns(group).place(column, row >> log_rows);
  }

  // The largest magnitudes in the MX blocks of the rows of the lane's word.
  static __device__ __forceinline__ uint32_t of_rows(const Rounded& y, int lane) {
    uint32_t of[kLaneRows], words[row_words];
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) of[i] = M::of_row(y[i]);
    M::join(of, words);
    return M::template over_lanes<1>(words, lane);
  }
  // Likewise of the columns of the lane's word.
  static __device__ __forceinline__ uint32_t of_columns(const Rounded& y, int lane) {
    uint32_t of[words];
#pragma unroll
    for (int k = 0; k < words; ++k) {
      of[k] = word_of(y[0], k);
#pragma unroll
      for (int i = 1; i < kLaneRows; ++i) of[k] = M::larger(of[k], word_of(y[i], k));
    }
    return M::template over_lanes<kTileLanes>(of, lane);
  }

  static __device__ __forceinline__ void store_rows(const QuantizedMatrix& m, const RowBytes& bytes,
                                                    const Lane& t) {
    const auto stride = static_cast<uint32_t>(m.row_stride / 4);
    uint8_t* const at = as_base(m.data + (t.row + t.first) * m.row_stride + t.column);
    t.for_rows([&](int i) { bytes[i].store(advance<4>(at, stride, i)); });
  }

  // The matrix has the columns of y as its rows. Some of eight rows may not be there, or not at a
  // multiple of eight: where groups of rows begin or end.
  static __device__ __forceinline__ void store_columns(const Quantization& q,
                                                       const QuantizedMatrix& m,
                                                       const ColumnBytes& bytes, const Lane& t) {
    const auto stride = static_cast<uint32_t>(m.row_stride / 4);
    uint8_t* const at = as_base(m.data + t.column * m.row_stride + t.row + t.group * kLaneRows);
    const int left = t.rows - t.group * kLaneRows;
    if (left >= kLaneRows && t.row % kLaneRows == 0) {
#pragma unroll
      for (int j = 0; j < size; ++j) {
        *reinterpret_cast<uint2*>(advance<4>(at, stride, j)) = bytes[j];
      }
    } else if (q.groups.ends) {
#pragma unroll
      for (int j = 0; j < size; ++j) {
        uint8_t* to = advance<4>(at, stride, j);
        uint2 rest = bytes[j];
#pragma unroll 1
        for (int i = 0; i < min(left, kLaneRows); ++i) {
          to[i] = static_cast<uint8_t>(rest.x);
          rest = {__byte_perm(rest.x, rest.y, 0x4321), rest.y >> 8};
        }
      }
    }
  }

  // With a factor for each of the rows.
  static __device__ __forceinline__ void round_rows_by(const float (&inverses)[kLaneRows],
                                                       bool is_e5m2, const Rounded& y,
                                                       RowBytes& bytes) {
    const auto round = [&](auto format) {
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i) {
        float x[size];
        y[i].unpack(x);
#pragma unroll
        for (int j = 0; j < size; ++j) x[j] *= inverses[i];
        bytes[i] = Bytes<Precision>::template round<decltype(format)>(x);
      }
    };
    is_e5m2 ? round(e5m2()) : round(e4m3fn());
  }

  // With a factor for each of the columns.
  static __device__ __forceinline__ void round_columns_by(const float (&inverses)[size],
                                                          bool is_e5m2, const Rounded& y,
                                                          ColumnBytes& bytes) {
    const auto round = [&](auto format) {
      using Format = decltype(format);
#pragma unroll
      for (int j = 0; j < size; ++j) {
        float x[kLaneRows];
#pragma unroll
        for (int i = 0; i < kLaneRows; ++i) {
          const uint32_t word = word_of(y[i], j / per_word);
          x[i] = per_word == 1 ? from_bits(word) : j % 2 == 0 ? low_of(word) : high_of(word);
          x[i] *= inverses[j];
        }
        bytes[j] = {round_to_bytes<Format>(x[0], x[1], x[2], x[3]),
                    round_to_bytes<Format>(x[4], x[5], x[6], x[7])};
      }
    };
    is_e5m2 ? round(e5m2()) : round(e4m3fn());
  }
};

}  // namespace gelu_kernels::cuda

// A tile of 32 rows that a warp quantises: a lane has the columns of one vector in 8 of the rows,
// and 8 lanes are side by side. The numbers are in its registers, rounded.
#pragma once

#include "csrc/cuda/quantized/float8.h"
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
constexpr int quantized_tile_blocks_per_processor(int inputs, int size, int columns, bool has_sums,
                                                  bool converts, bool has_pairs) {
  if (size == 8 && inputs > 1) return converts ? 4 : 3;
  if (size == 8) return !converts || has_pairs ? 4 : columns == 1 ? 5 : 6;
  return inputs == 1 ? 6 : inputs == 2 && !has_sums ? 5 : 4;
}

constexpr int kTileRows = 32;
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
template <bool has_sums>
struct LaneOfTile {
  int lane, group;
  uint32_t row, column;
  int first;
  int rows;       // that the tile has; none where the column is not there
  bool is_whole;  // the tile, for all lanes: they go the same way

  // The lane's row i, counted from its first one. Sums of columns want two rows of each eight, else
  // all eight are together.
  static constexpr __device__ int offset(int i) { return has_sums ? i / 2 * 8 + i % 2 : i; }

  // f(i) for the rows that are there, and otherwise(i) for the others.
  template <int begin, int end, class F, class Otherwise>
  __device__ __forceinline__ void for_rows(F f, Otherwise otherwise) const {
    const int left = rows - first;
    if (is_whole) {
#pragma unroll
      for (int i = begin; i < end; ++i) f(i);
    } else {
#pragma unroll
      for (int i = begin; i < end; ++i) left > offset(i) ? f(i) : otherwise(i);
    }
  }
  template <class F>
  __device__ __forceinline__ void for_rows(F f) const {
    for_rows<0, kLaneRows>(f, [](int) {});
  }
};

template <class Precision, bool has_sums>
struct QuantizedTile {
  using V = Vector<Precision>;
  using M = Magnitudes<Precision>;
  using Lane = LaneOfTile<has_sums>;
  using Rounded = V[kLaneRows];
  static constexpr int size = V::size, per_word = M::per_word;
  static constexpr int columns = kTileLanes * size;
  static constexpr int words = size / per_word;           // of a vector, always 4
  static constexpr int row_words = kLaneRows / per_word;  // for a number of each of the rows
  static constexpr int block_lanes = kMxBlock / size;     // side by side in an MX block
  static_assert(row_words == block_lanes && words == kTileGroups);

  static __device__ __forceinline__ uint32_t word_of(const V& v, int k) {
    return k == 0 ? v.words.x : k == 1 ? v.words.y : k == 2 ? v.words.z : v.words.w;
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

  // Scales of consecutive rows of a matrix.
  static __device__ __forceinline__ void store_scales(const QuantizedMatrix& m, uint32_t row,
                                                      uint32_t block,
                                                      const MxScales<Precision>& found, int left) {
    char* to = m.scales + m.layout.place(row, block);
    const int64_t step = m.layout.tiles ? 16 : m.layout.row_stride;
#pragma unroll
    for (int k = 0; k < per_word; ++k, to += step) {
      if (k < left) *to = static_cast<char>(found.scales[k]);
    }
  }

  static __device__ __forceinline__ void store_rows(const QuantizedMatrix& m,
                                                    const Bytes<Precision> (&bytes)[kLaneRows],
                                                    const Lane& t) {
    const auto stride = static_cast<uint32_t>(m.row_stride / 4);
    uint8_t* const at = as_base(m.data + (t.row + t.first) * m.row_stride + t.column);
    t.for_rows([&](int i) { bytes[i].store(advance<4>(at, stride, Lane::offset(i))); });
  }

  static __device__ __forceinline__ void quantize_rows(const Quantization& q,
                                                       const QuantizedMatrix& m, const Rounded& y,
                                                       const Lane& t) {
    const MxScales<Precision> found(q.blocks, of_rows(y, t.lane));
    uint32_t inverses[row_words];
#pragma unroll
    for (int k = 0; k < row_words; ++k) {
      inverses[k] = __shfl_sync(kAllLanes, found.inverses, k, block_lanes);
    }
    const int row = t.first + Lane::offset(t.lane % block_lanes * per_word);
    store_scales(m, t.row + row, t.column / kMxBlock, found, t.rows - row);
    const auto store = [&](auto format) {
      Bytes<Precision> bytes[kLaneRows];
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i) {
        uint32_t inverse = inverses[i / per_word];
        if (per_word == 2) inverse = __byte_perm(inverse, inverse, i % 2 ? 0x3232 : 0x1010);
        float products[words][per_word], flat[size];
#pragma unroll
        for (int k = 0; k < words; ++k) multiply<Precision>(word_of(y[i], k), inverse, products[k]);
        memcpy(flat, products, sizeof flat);
        bytes[i] = Bytes<Precision>::template round<decltype(format)>(flat);
      }
      store_rows(m, bytes, t);
    };
    q.is_e5m2 ? store(e5m2()) : store(e4m3fn());
  }

  // The matrix has the columns of y as its rows.
  static __device__ __forceinline__ void quantize_columns(const Quantization& q,
                                                          const QuantizedMatrix& m,
                                                          const Rounded& y, const Lane& t) {
    const MxScales<Precision> found(q.blocks, of_columns(y, t.lane));
    uint32_t inverses[words];
#pragma unroll
    for (int k = 0; k < words; ++k) {
      inverses[k] = __shfl_sync(kAllLanes, found.inverses, t.lane % kTileLanes + k * kTileLanes);
    }
    if (t.rows != 0) {
      store_scales(m, t.column + t.group * per_word, t.row / kMxBlock, found, per_word);
    }
    const auto stride = static_cast<uint32_t>(m.row_stride / 4);
    uint8_t* const at = as_base(m.data + t.column * m.row_stride + t.row + t.group * kLaneRows);
    const auto store = [&](auto format) {
      using Format = decltype(format);
#pragma unroll
      for (int k = 0; k < words; ++k) {
        float x[kLaneRows][per_word];
#pragma unroll
        for (int i = 0; i < kLaneRows; ++i)
          multiply<Precision>(word_of(y[i], k), inverses[k], x[i]);
#pragma unroll
        for (int j = 0; j < per_word; ++j) {
          uint2 bytes = {round_to_bytes<Format>(x[0][j], x[1][j], x[2][j], x[3][j]),
                         round_to_bytes<Format>(x[4][j], x[5][j], x[6][j], x[7][j])};
          if constexpr (has_sums) bytes = gather(bytes, t.lane);
          auto* const to = reinterpret_cast<uint2*>(advance<4>(at, stride, k * per_word + j));
          if (t.rows != 0) *to = bytes;
        }
      }
    };
    q.is_e5m2 ? store(e5m2()) : store(e4m3fn());
  }

  // Of the four lanes of a column, which have two of each eight rows, the eight rows together: the
  // halfword i of the lane j becomes the halfword j of the lane i.
  static __device__ __forceinline__ uint2 gather(uint2 rows, int lane) {
    const bool is_odd = lane & kTileLanes, is_upper = lane & (2 * kTileLanes);
    const uint32_t own = is_upper ? rows.y : rows.x;
    const uint32_t other = __shfl_xor_sync(kAllLanes, is_upper ? rows.x : rows.y, 2 * kTileLanes);
    const uint32_t sent = __byte_perm(own, other, is_odd ? 0x5410 : 0x7632);
    const uint32_t got = __shfl_xor_sync(kAllLanes, sent, kTileLanes);
    const uint32_t of_own = __byte_perm(own, got, is_odd ? 0x3254 : 0x5410);
    const uint32_t of_other = __byte_perm(other, got, is_odd ? 0x3276 : 0x7610);
    return is_upper ? uint2{of_other, of_own} : uint2{of_own, of_other};
  }

  static __device__ __forceinline__ void quantize(const Quantization& q, const QuantizedResult& m,
                                                  const Rounded& y, const Lane& t) {
    if (m.rows.data) quantize_rows(q, m.rows, y, t);
    if (m.columns.data) quantize_columns(q, m.columns, y, t);
  }

  // A factor for each of the rows.
  static __device__ __forceinline__ void quantize_by(const float (&inverses)[kLaneRows],
                                                     const Quantization& q, const Rounded& y,
                                                     const Lane& t) {
    const auto store = [&](auto format) {
      Bytes<Precision> bytes[kLaneRows];
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i) {
        float x[size];
        y[i].unpack(x);
#pragma unroll
        for (int j = 0; j < size; ++j) x[j] *= inverses[i];
        bytes[i] = Bytes<Precision>::template round<decltype(format)>(x);
      }
      store_rows(q.results[0].rows, bytes, t);
    };
    q.is_e5m2 ? store(e5m2()) : store(e4m3fn());
  }

  // By the scale that is given; finds the largest magnitude of all.
  static __device__ __forceinline__ void quantize_by_given(const Quantization& q, float scale,
                                                           const Rounded& y, const Lane& t) {
    uint32_t word = 0;
    // With a bias, y is not zero where there is no row.
    t.for_rows([&](int i) { word = M::larger(word, M::of_row(y[i])); });
    const uint32_t largest = M::over_warp(word);
    const auto amax = reinterpret_cast<unsigned*>(q.amax);
    // Most warps find that a larger one was there, which takes no atomic operation.
    if (t.lane == 0 && largest > *amax) atomicMax(amax, largest);
    float inverses[kLaneRows];
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) inverses[i] = inverse_of_scale(scale);
    quantize_by(inverses, q, y, t);
  }

  // In blocks of 128 columns. Of the neighbouring warps that have them, each lane has the scale of
  // a row.
  static __device__ __forceinline__ void quantize_by_128(const Quantization& q, const Rounded& y,
                                                         const Lane& t) {
    constexpr int warps = kFloatBlock / columns;
    __shared__ uint32_t of_warps[kTileWarps][kTileRows / per_word];
    uint32_t word = of_rows(y, t.lane);
#pragma unroll
    for (int lanes = block_lanes; lanes < kTileLanes; lanes *= 2) {
      word = M::larger(word, __shfl_xor_sync(kAllLanes, word, lanes));
    }
    const int warp = threadIdx.x / kWarp;
    if (t.lane % kTileLanes < row_words) {
      of_warps[warp][t.group * row_words + t.lane % kTileLanes] = word;
    }
    __syncthreads();
    word = 0;
#pragma unroll
    for (int i = 0; i < warps; ++i) {
      word = M::larger(word, of_warps[warp / warps * warps + i][t.lane / per_word]);
    }
    const FloatScale found = float_scale_of(M::bits_of(word, t.lane % per_word), q.largest);
    const QuantizedMatrix& m = q.results[0].rows;
    if (warp % warps == 0 && t.lane < t.rows) {
      const int64_t place = m.layout.place<uint32_t>(t.row + t.lane, t.column / kFloatBlock);
      reinterpret_cast<float*>(m.scales)[place] = found.scale;
    }
    float inverses[kLaneRows];
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      inverses[i] = __shfl_sync(kAllLanes, found.inverse, t.group * kLaneRows + i);
    }
    quantize_by(inverses, q, y, t);
  }
};

}  // namespace gelu_kernels::cuda

// A tile in blocks of 32 numbers, whose scales are powers of two in eight bits. No block has parts
// in several tiles.
#pragma once

#include "csrc/cuda/quantized/tile.cuh"

namespace gelu_kernels::cuda {

template <class Precision, bool has_sums>
struct MxTile : QuantizedTile<Precision, has_sums> {
  using Base = QuantizedTile<Precision, has_sums>;
  using Base::block_lanes;
  using Base::per_word;
  using Base::row_words;
  using Base::size;
  using Base::words;
  using typename Base::ColumnBytes;
  using typename Base::Lane;
  using typename Base::Rounded;
  using typename Base::RowBytes;

  static __device__ __forceinline__ void round_rows(const Quantization& q, const QuantizedMatrix& m,
                                                    const Rounded& y, const Lane& t,
                                                    RowBytes& bytes) {
    const MxScales<Precision> found(q.powers, Base::of_rows(y, t.lane));
    uint32_t inverses[row_words];
#pragma unroll
    for (int k = 0; k < row_words; ++k) {
      inverses[k] = __shfl_sync(kAllLanes, found.inverses, k, block_lanes);
    }
    const int row = t.first + Lane::offset(t.lane % block_lanes * per_word);
    const int64_t place = Base::place_of_row(q, m, t, t.row + row, t.column / kMxBlock);
    store_scales(m, place, found, t.rows - row);
    const auto round = [&](auto format) {
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i) {
        uint32_t inverse = inverses[i / per_word];
        if (per_word == 2) inverse = __byte_perm(inverse, inverse, i % 2 ? 0x3232 : 0x1010);
        float products[words][per_word], flat[size];
#pragma unroll
        for (int k = 0; k < words; ++k)
          multiply<Precision>(Base::word_of(y[i], k), inverse, products[k]);
        memcpy(flat, products, sizeof flat);
        bytes[i] = Bytes<Precision>::template round<decltype(format)>(flat);
      }
    };
    q.is_e5m2 ? round(e5m2()) : round(e4m3fn());
  }

  // The matrix has the columns of y as its rows.
  static __device__ __forceinline__ void round_columns(const Quantization& q,
                                                       const QuantizedMatrix& m, const Rounded& y,
                                                       const Lane& t, ColumnBytes& bytes) {
    const MxScales<Precision> found(q.powers, Base::of_columns(y, t.lane));
    uint32_t inverses[words];
#pragma unroll
    for (int k = 0; k < words; ++k) {
      inverses[k] = __shfl_sync(kAllLanes, found.inverses, t.lane % kTileLanes + k * kTileLanes);
    }
    const int64_t place =
        Base::place_of_column(q, m, t, t.column + t.group * per_word, kLogTileRows);
    if (t.rows != 0) store_scales(m, place, found, per_word);
    const auto round = [&](auto format) {
      using Format = decltype(format);
#pragma unroll
      for (int k = 0; k < words; ++k) {
        float x[kLaneRows][per_word];
#pragma unroll
        for (int i = 0; i < kLaneRows; ++i)
          multiply<Precision>(Base::word_of(y[i], k), inverses[k], x[i]);
#pragma unroll
        for (int j = 0; j < per_word; ++j) {
          uint2 eight = {round_to_bytes<Format>(x[0][j], x[1][j], x[2][j], x[3][j]),
                         round_to_bytes<Format>(x[4][j], x[5][j], x[6][j], x[7][j])};
          if constexpr (has_sums) eight = gather(eight, t.lane);
          bytes[k * per_word + j] = eight;
        }
      }
    };
    q.is_e5m2 ? round(e5m2()) : round(e4m3fn());
  }

 private:
  // Scales of consecutive rows of a matrix.
  static __device__ __forceinline__ void store_scales(const QuantizedMatrix& m, int64_t place,
                                                      const MxScales<Precision>& found, int left) {
    char* to = m.scales + place;
    const int64_t step = m.layout.tiles ? 16 : m.layout.row_stride;
#pragma unroll
    for (int k = 0; k < per_word; ++k, to += step) {
      if (k < left) *to = static_cast<char>(found.scales[k]);
    }
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
};

}  // namespace gelu_kernels::cuda

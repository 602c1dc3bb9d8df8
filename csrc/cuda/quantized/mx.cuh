// A tile in blocks of 32 numbers, whose scales are powers of two in eight bits. No block has parts
// in several tiles.
#pragma once

#include "csrc/cuda/quantized/tile.cuh"

namespace gelu_kernels::cuda {

template <class Precision>
struct MxTile : QuantizedTile<Precision> {
  using Base = QuantizedTile<Precision>;
  using Base::block_lanes;
  using Base::per_word;
  using Base::row_words;
  using Base::size;
  using Base::words;
  using typename Base::ColumnBytes;
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
    const int row = t.first + t.lane % block_lanes * per_word;
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
          bytes[k * per_word + j] = {round_to_bytes<Format>(x[0][j], x[1][j], x[2][j], x[3][j]),
                                     round_to_bytes<Format>(x[4][j], x[5][j], x[6][j], x[7][j])};
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
};

}  // namespace gelu_kernels::cuda

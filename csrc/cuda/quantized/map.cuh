// What a kernel that quantises tiles computes, and how it is distributed.
#pragma once

#include "csrc/cuda/divisor.h"
#include "csrc/cuda/quantized/blocks.cuh"
#include "csrc/cuda/quantized/function.cuh"

namespace gelu_kernels::cuda {

// A scale may be given in a forward pass alone; a backward pass may sum the gradient of the bias.
enum class TilePass { forward, backward, backward_bias };

template <class Function, class Precision, int kColumns, TilePass pass>
struct QuantizedMap : QuantizedFunction<Function, Precision, kColumns> {
  using Base = QuantizedFunction<Function, Precision, kColumns>;
  using Base::inputs;
  using typename Base::Along;
  using typename Base::Real;
  using typename Base::V;
  static constexpr bool has_sums = pass == TilePass::backward_bias;
  using Tile = QuantizedTile<Precision>;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  static constexpr bool converts = false;
#else
  static constexpr bool converts = true;
#endif
  // Rows that a lane loads before it computes.
  static constexpr int ahead = quantized_tile_rows(inputs, V::size, converts);
  static constexpr int blocks =
      quantized_tile_blocks_per_processor(inputs, V::size, kColumns, converts, kPacked<Real> > 1);

  // dx, also unrounded.
  static __device__ __forceinline__ V apply_backward(const V (&in)[inputs], const Along& along,
                                                     Real (&dx)[V::size]) {
    Real dy[V::size], x[V::size];
    in[0].unpack(dy);
    in[1].unpack(x);
#pragma unroll
    for (int j = 0; j < V::size; j += kPacked<Real>) {
      unpack(Function::apply(pack(dy + j), pack(x + j), pack(along + j)), dx + j);
    }
    return V::round(dx);
  }
};

// How tiles, or blocks of threads whose tiles are together, are counted: along a band of rows
// first.
struct TileGrid {
  Divisor along_band;
  uint32_t band_rows;
  bool are_together;
  Exchange exchange;
  int log_sum_rows;  // of a block of RowBlocks
};

constexpr int kMostTileWarps = 16;

// What would take registers while the results are computed: of each warp, and for each thread what
// is known for its row or column.
template <class Precision, int outputs>
struct Kept {
  typename BlockTile<Precision>::Shared blocks;

  RowGroup groups[kMostTileWarps];
  float weights[kMostTileWarps][kTileRows];
  uint32_t known[outputs][2 * kFloatBlock];
};

}  // namespace gelu_kernels::cuda

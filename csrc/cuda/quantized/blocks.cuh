// A tile in blocks of 128 numbers, or of whole rows and columns: their parts are in several tiles,
// whose warps exchange the largest magnitudes through shared memory.
#pragma once

#include "csrc/cuda/quantized/tile.cuh"

namespace gelu_kernels::cuda {

// Where the largest magnitudes come from.
enum class Search {
  here,     // all numbers of a block are in a block of threads
  collect,  // those of rows and columns are collected for another pass over the inputs
  known,    // which this is
};

// How the tiles of a block of threads lie: 1 << log_across side by side. All have parts of a block
// of numbers along a row if there are results along rows, likewise of a column.
struct Exchange {
  int log_across;
  Search search;

  __device__ __forceinline__ int across(int warp) const { return warp & ((1 << log_across) - 1); }
  __device__ __forceinline__ int down(int warp) const { return warp >> log_across; }
};

template <class Precision>
struct BlockTile : QuantizedTile<Precision> {
  using Base = QuantizedTile<Precision>;
  using M = typename Base::M;
  using Base::block_lanes;
  using Base::per_word;
  using Base::row_words;
  using Base::size;
  using Base::words;
  using typename Base::Rounded;
  static constexpr int tiles_along_row = kFloatBlock / Base::columns;
  static constexpr int tiles_along_column = kFloatBlock / kTileRows;

  // Words of the rows and columns of all tiles; and factors, of the rows, if they are wanted, then
  // of the columns.
  struct Shared {
    uint32_t rows[tiles_along_row][kFloatBlock / per_word];
    uint32_t columns[tiles_along_column][kFloatBlock / per_word];
    alignas(16) float inverses[2 * kFloatBlock];
  };

  // A thread sees to the scale of a row of the block of threads, or of a column.
  struct Owner {
    bool is_row, is_there;
    bool is_first;  // block of threads that has the row or column, of its group
    int own;        // among those of the block of threads
    uint32_t index;
    int64_t amax;  // its place in the memory for the largest magnitudes
  };
  static __device__ __forceinline__ Owner owner(const QuantizedOperands& m,
                                                const QuantizedResult& to, const Exchange& e,
                                                const Lane& t) {
    const int warp = threadIdx.x / kWarp, thread = threadIdx.x;
    const int rows = rows_of(to, e);
    const uint32_t first_row = t.row - e.down(warp) * kTileRows;
    const uint32_t first_column =
        t.column - t.lane % kTileLanes * size - e.across(warp) * Base::columns;
    RowGroup group = {0, m.rows, 0, 0};
    if (m.quantization.groups.ends) group = *t.group_of_rows;
    Owner o;
    o.is_row = thread < rows;
    if (o.is_row) {
      o.own = thread;
      o.index = first_row + o.own;
      o.is_there = o.index < static_cast<uint32_t>(group.end);
      o.is_first = first_column == 0;
      o.amax = o.index;
    } else {
      o.own = thread - rows;
      o.index = first_column + o.own;
      o.is_there = to.columns.data && o.own < Base::columns << e.log_across &&
                   o.index < static_cast<uint32_t>(m.columns);
      o.is_first = first_row == static_cast<uint32_t>(group.begin);
      o.amax = o.index + group.first_block * m.columns;
    }
    return o;
  }
  // Rows of a block of threads that have scales.
  static __device__ __forceinline__ int rows_of(const QuantizedResult& to, const Exchange& e) {
    return to.rows.data ? static_cast<int>(blockDim.x >> e.log_across) : 0;
  }
  static __device__ __forceinline__ const QuantizedMatrix& matrix_of(const QuantizedResult& to,
                                                                     const Owner& o) {
    return o.is_row ? to.rows : to.columns;
  }

  // What another pass has found for the thread's row or column.
  static __device__ __forceinline__ uint32_t known(const QuantizedOperands& m,
                                                   const QuantizedResult& to, const Exchange& e,
                                                   const Lane& t) {
    const Owner o = owner(m, to, e, t);
    return o.is_there ? matrix_of(to, o).amax[o.amax] : 0;
  }

  // Stores the scales and leaves the factors in shared memory; `known` is there, a number for each
  // thread. False if the largest magnitudes are collected alone.
  static __device__ __forceinline__ bool find_scales(const QuantizedOperands& m,
                                                     const QuantizedResult& to, const Exchange& e,
                                                     const uint32_t* known, const Rounded& y,
                                                     const Lane& t, Shared& shared) {
    const Quantization& q = m.quantization;
    if (e.search != Search::known) share(shared, to, e, y, t);
    __syncthreads();
    const Owner o = owner(m, to, e, t);
    const QuantizedMatrix& own = matrix_of(to, o);
    uint32_t amax = 0;
    if (o.is_there) amax = e.search == Search::known ? known[threadIdx.x] : of_owner(shared, o);
    if (e.search == Search::collect) {
      if (o.is_there) atomicMax(own.amax + o.amax, amax);
      __syncthreads();  // before shared memory is written for another result
      return false;
    }
    const StoredScale found = StoredScale::of(q, amax);
    if (threadIdx.x < 2 * kFloatBlock) shared.inverses[threadIdx.x] = found.inverse;
    const bool is_row_wise = q.scaling == Scaling::RowWise;
    const int64_t place =
        o.is_row ? Base::place_of_row(q, own, t, o.index, is_row_wise ? 0 : t.column / kFloatBlock)
                 : Base::place_of_column(q, own, t, o.index, is_row_wise ? 31 : 7);
    if (o.is_there && (o.is_first || !is_row_wise)) found.store(q, own.scales, place);
    __syncthreads();
    return true;
  }
  static __device__ __forceinline__ void factors_of_rows(const Shared& shared, const Exchange& e,
                                                         const Lane& t,
                                                         float (&inverses)[kLaneRows]) {
    load(inverses, shared.inverses + e.down(threadIdx.x / kWarp) * kTileRows + t.first);
  }
  static __device__ __forceinline__ void factors_of_columns(const Shared& shared,
                                                            const QuantizedResult& to,
                                                            const Exchange& e, const Lane& t,
                                                            float (&inverses)[size]) {
    load(inverses, shared.inverses + rows_of(to, e) +
                       e.across(threadIdx.x / kWarp) * Base::columns + t.lane % kTileLanes * size);
  }

 private:
  static __device__ __forceinline__ void share(Shared& shared, const QuantizedResult& to,
                                               const Exchange& e, const Rounded& y, const Lane& t) {
    const int warp = threadIdx.x / kWarp, across = e.across(warp), down = e.down(warp);
    if (to.rows.data) {
      uint32_t word = Base::of_rows(y, t.lane);
#pragma unroll
      for (int lanes = block_lanes; lanes < kTileLanes; lanes *= 2) {
        word = M::larger(word, __shfl_xor_sync(kAllLanes, word, lanes));
      }
      if (t.lane % kTileLanes < row_words) {
        const int first = down * (kTileRows / per_word) + t.group * row_words;
        shared.rows[across][first + t.lane % kTileLanes] = word;
      }
    }
    if (to.columns.data) {
      const int first = across * (Base::columns / per_word) + t.lane % kTileLanes * words;
      shared.columns[down][first + t.group] = Base::of_columns(y, t.lane);
    }
  }

  static __device__ __forceinline__ uint32_t of_owner(const Shared& shared, const Owner& o) {
    uint32_t word = 0;
    const auto join = [&](const auto& of_tiles) {
#pragma unroll
      for (const auto& of_tile : of_tiles) word = M::larger(word, of_tile[o.own / per_word]);
    };
    o.is_row ? join(shared.rows) : join(shared.columns);
    return M::bits_of(word, o.own % per_word);
  }

  template <int count>
  static __device__ __forceinline__ void load(float (&to)[count], const float* from) {
#pragma unroll
    for (int i = 0; i < count; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      memcpy(to + i, &four, sizeof four);
    }
  }
};

}  // namespace gelu_kernels::cuda

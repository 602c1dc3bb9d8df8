// The sums of the columns of dx, in the order of csrc/gates/column_sums.h. Four tiles below each
// other leave dx, unrounded, in shared memory; then each of their threads adds the rows of one of
// kRowLanes sums.
#pragma once

#include "csrc/cuda/quantized/blocks.cuh"
#include "csrc/gates/column_sums.h"

namespace gelu_kernels::cuda {

constexpr int kSumRows = kFloatBlock;  // as many as share a scale in a column
constexpr int kSumTiles = kSumRows / kTileRows;

template <class Precision>
struct TileSums {
  using Tile = QuantizedTile<Precision>;
  static constexpr int size = Tile::size, columns = Tile::columns;
  // The columns of a thread, and the parts of a row that such columns are.
  static constexpr int own = columns * kRowLanes / (kSumTiles * kWarp), parts = columns / own;
  static constexpr int part_rows = 32;  // RowBlocks has 32 rows in a block, or 64, and so on

  // The rows of the tiles, then the threads' sums of a block that does not end there. Of a row, the
  // first four numbers of all lanes lie side by side, then the next four, so that the lanes of a
  // warp write to different banks.
  using Terms = float[kSumRows + kRowLanes][columns];
  static constexpr int shared_bytes = sizeof(Terms);
  Terms& terms;
  int thread;  // among those of the tiles

  __device__ __forceinline__ TileSums(void* shared, const Exchange& e)
      : TileSums(static_cast<Terms*>(shared), e, thread_index()) {}

  // In its tile, of a number in a row of terms.
  static __device__ __forceinline__ uint32_t column_of(int place) {
    return place / 4 % kTileLanes * size + place / 4 / kTileLanes * 4 + place % 4;
  }

  // The lane's row i.
  __device__ __forceinline__ void keep(const Lane& t, int i, const float (&dx)[size]) const {
    float* const to = terms[thread / kWarp * kTileRows + t.first] + t.lane % kTileLanes * 4;
#pragma unroll
    for (int j = 0; j < size; j += 4) {
      const float4 four = {dx[j], dx[j + 1], dx[j + 2], dx[j + 3]};
      *reinterpret_cast<float4*>(to + i * columns + j * kTileLanes) = four;
    }
  }

  // Adds the tiles' rows to the sums of the thread. Where a block of 1 << log_rows rows ends, adds
  // its kRowLanes sums of each column.
  __device__ __forceinline__ void add(const QuantizedOperands& m, uint32_t first_row,
                                      uint32_t first_column, int log_rows) const {
    const auto rows = static_cast<uint32_t>(m.rows);
    const uint32_t of_block = (1u << log_rows) - 1;
    float* const kept = own_of(kSumRows);
    float sum[own] = {};
    if ((first_row & of_block) != 0) move(sum, kept);
#pragma unroll
    for (uint32_t row = 0; row < kSumRows; row += part_rows) {
      float* const first = own_of(row);
#pragma unroll
      for (int i = 0; i < part_rows; i += kRowLanes) {
        float term[own];
        move(term, first + i * columns);
#pragma unroll
        for (int j = 0; j < own; ++j) sum[j] += term[j];
      }
      const uint32_t end = first_row + row + part_rows;
      const bool is_last = end >= rows;
      if ((end & of_block) != 0 && !is_last) continue;
      move(first, sum);  // where no other thread reads before
      __syncthreads();
      const uint32_t column = first_column + column_of(thread);
      if (thread < columns && column < static_cast<uint32_t>(m.columns)) {
        float total = terms[row][thread];
#pragma unroll
        for (int lane = 1; lane < kRowLanes; ++lane) total += terms[row + lane][thread];
        const int64_t block = (end - 1) >> log_rows;
        static_cast<float*>(m.partials)[block * m.columns + column] = total;
      }
      if (is_last) return;
#pragma unroll
      for (float& x : sum) x = 0;
    }
    move(kept, sum);
  }

 private:
  __device__ __forceinline__ TileSums(Terms* shared, const Exchange& e, int index)
      : terms(shared[e.across(index / kWarp)]),
        thread(e.down(index / kWarp) * kWarp + index % kWarp) {}

  // Read anew, as what follows from it would be in registers all the time.
  static __device__ __forceinline__ int thread_index() {
    int index;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
    return index;
  }

  // The thread's part of the rows that begin here.
  __device__ __forceinline__ float* own_of(uint32_t row) const {
    return terms[row + thread / parts] + thread % parts * own;
  }

  using Part = std::conditional_t<own == 4, float4, float2>;
  static __device__ __forceinline__ void move(float* to, const float* from) {
    *reinterpret_cast<Part*>(to) = *reinterpret_cast<const Part*>(from);
  }
};

}  // namespace gelu_kernels::cuda

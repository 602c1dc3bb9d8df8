// Finds the group that a band of rows is in: a warp looks at 32 groups at a time.
#pragma once

#include "csrc/cuda/quantized/magnitudes.h"
#include "csrc/gates/quantized.h"

namespace gelu_kernels::cuda {

// A number of each lane, added to or compared with those of the lanes before it.
template <class F>
__device__ __forceinline__ uint32_t scan(uint32_t x, int lane, F f) {
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const uint32_t before = __shfl_up_sync(kAllLanes, x, distance);
    if (lane >= distance) x = f(before, x);
  }
  return x;
}

// How rows in groups are cut into bands.
struct Bands {
  uint32_t rows;    // of the matrix
  int log_rows;     // of a band
  bool are_blocks;  // bands are blocks of scales, else each group is one block
};

// Its first row, and its group, which one lane writes to shared memory; false if there is no such
// band.
__device__ __forceinline__ bool find_band(const RowGroups& groups, const Bands& bands,
                                          uint32_t band, int lane, uint32_t& row, RowGroup& group) {
  const auto sum = [](uint32_t a, uint32_t b) { return a + b; };
  const auto larger = [](uint32_t a, uint32_t b) { return max(a, b); };
  const auto last = [](uint32_t x) { return __shfl_sync(kAllLanes, x, kWarp - 1); };
  uint32_t begin = 0, bands_before = 0, tiles_before = 0;
#pragma unroll 1
  for (int first = 0; first < groups.count; first += kWarp) {
    const int own = first + lane;
    const int given = own < groups.count ? groups.ends[own] : 0;
    const uint32_t least = min(static_cast<uint32_t>(max(given, 0)), bands.rows);
    const uint32_t end = scan(max(least, begin), lane, larger);
    uint32_t own_begin = __shfl_up_sync(kAllLanes, end, 1);
    if (lane == 0) own_begin = begin;
    const uint32_t rows = end - own_begin;
    const uint32_t own_bands = (rows + (1u << bands.log_rows) - 1) >> bands.log_rows;
    const uint32_t own_tiles = (rows + 127) / 128;
    const uint32_t to_end = bands_before + scan(own_bands, lane, sum);
    const uint32_t tiles_to_end = tiles_before + scan(own_tiles, lane, sum);
    const uint32_t found = __reduce_max_sync(kAllLanes, to_end > band ? kWarp - lane : 0);
    if (found != 0) {
      const auto of_found = [&](uint32_t x) {
        return __shfl_sync(kAllLanes, x, kWarp - static_cast<int>(found));
      };
      const uint32_t first_band = of_found(to_end - own_bands);
      const uint32_t own_number = static_cast<uint32_t>(own);
      const RowGroup own_group = {own_begin, end,
                                  bands.are_blocks ? to_end - own_bands : own_number,
                                  tiles_to_end - own_tiles};
      row = of_found(own_begin) + ((band - of_found(to_end - own_bands)) << bands.log_rows);
      if (lane == kWarp - static_cast<int>(found)) group = own_group;
      __syncwarp();
      return true;
    }
    begin = last(end);
    bands_before = last(to_end);
    tiles_before = last(tiles_to_end);
  }
  return false;
}

}  // namespace gelu_kernels::cuda

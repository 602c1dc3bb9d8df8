// The numbers that distribute a kernel over a GPU. They change its speed and no result.
#pragma once

#include <cstdint>

namespace gelu_kernels::cuda {

constexpr int kVectorBytes = 16;  // one access of a thread
constexpr int kWarp = 32;
constexpr int kSegmentBytes = kWarp * kVectorBytes;  // one access of a warp

// 8 warps a block: blocks that are small start and end without leaving a processor idle.
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;

// Rows that a thread loads before it computes: fewer with more operands. CCCL found by experiment
// that 32 kB in flight on a processor fill an H100's memory, 48 an H200's and 64 a B200's (cub's
// cc_to_min_bytes_in_flight).
constexpr int rows_in_flight(int inputs) { return inputs == 1 ? 4 : 2; }

// Rows of column sums that a thread loads ahead, of `inputs` operands. Two blocks of 256 threads
// with 8 vectors a thread load 64 kB, as many as fill a B200's memory. Two sums share 48 kB of
// shared memory, all that a block has without asking, with three rows of two vectors. Spaced
// elements are in registers.
constexpr int column_sum_rows(int inputs, int sums, bool are_spaced) {
  if (are_spaced) return 2;
  return sums == 1 ? 8 / inputs : 3;
}
constexpr int kColumnSumBlocksPerProcessor = 2;
// Blocks of rows whose partial sums the last block of a segment adds. At 64 bytes a cycle it loads
// the 128 kB of so many in 1.2 us; the 3.7 us of a second kernel, which has more processors, were
// measured on an H200.
constexpr int kMostBlocksOfLast = 128;

// The SOI map: warps of a block, vectors that a thread loads before it computes, and blocks that a
// processor is to have room for. A thread makes the keys of its random words once, and the inverse
// of a scale. Measured on an H200 at 1 GiB, % of a copy's speed in place of 4 vectors and blocks of
// 8 warps: bfloat16 97 (93). A bias, or a location and a scale, is one vector or two along the
// columns; with a block more they would spill. Pairs of floats need more registers.
constexpr int kSoiWarps = 4;
constexpr int kSoiThreads = kSoiWarps * kWarp;
constexpr int soi_vectors(int size) { return size == 2 ? 6 : 4; }
constexpr int soi_blocks_per_processor(int size, int columns, bool has_pairs) {
  if (size != 2) return columns == 0 ? 9 : 8;
  return 7 - columns - has_pairs * (columns < 2);
}
constexpr int kSoiBackwardVectors = 4;
constexpr int kSoiBackwardBlocksPerProcessor = 12;

// Octets that a thread has below each other, of dropout and coded derivatives: warps of a block.
constexpr int kOctetWarps = 4;
constexpr int kOctetThreads = kOctetWarps * kWarp;

// Dropout: octets that a thread loads before it computes, and blocks that a processor is to have
// room for, in as many registers as spill nothing. Up to 32 registers of a thread are of operands:
// by a model that was fitted to an H200, what counts is the elements under way on a processor. None
// of it was measured.
constexpr int dropout_rows(int inputs, int size) {
  const int rows = 16 / (inputs * size);
  return rows > 4 ? 4 : rows > 1 ? rows : 1;
}
constexpr int dropout_blocks_per_processor(int inputs, int size, bool has_pairs) {
  if (size == 8) return inputs <= 2 ? 5 : 4;
  if (has_pairs) return inputs <= 2 ? 6 : 5;
  if (size == 4) return 7;
  return inputs == 1 ? 10 : inputs == 2 ? 8 : 6;
}

// Element by element kernels: warps of a block, and blocks that a processor is to have room for. A
// formula takes up to 85 % of the time of its bytes, and a thread either waits or computes: the
// more warps, the better both overlap. 12 blocks leave a thread 40 registers. Measured on an H200
// at 1 GiB, % of a copy's speed in place of 4 blocks of 8 warps: bfloat16 forward with a bias 99
// (87), float32 forward 100 (95), float32 tanh backward 103 (95), bfloat16 GLU backward 99 (93; 7
// blocks in place of 3). Pairs of floats need more registers; they were not measured.
constexpr int kMapWarps = 4;
constexpr int kMapThreads = kMapWarps * kWarp;
constexpr int map_blocks_per_processor(int inputs, int number_bytes, bool has_pairs) {
  if (inputs <= 2) return number_bytes == 8 ? 8 : has_pairs ? 10 : 12;
  return number_bytes == 8 ? 6 : 7;
}
// With a location and a scale: the rows of a thread, which share what it works out from them (14
// instructions for a column); those that it loads ahead; and the blocks, most without a spill.
constexpr int kScaledMapRows = 8;
constexpr int scaled_map_rows_ahead(int size) { return size == 2 ? 3 : 2; }
constexpr int scaled_map_blocks_per_processor(int size, bool has_pairs) {
  return (size == 2 ? 9 : size == 4 ? 8 : 6) - 2 * has_pairs;
}

// Coded derivatives, in blocks as small: octets that a thread loads before it computes, and blocks.
// Value and derivative take nearly as long as memory does: what counts is how many elements are
// under way, and these are as many as fit in 64 registers. In pairs of floats 7 blocks would spill.
constexpr int coded_octets(int size) { return size == 8 ? 1 : 12 / size; }
constexpr int coded_blocks_per_processor(int size, bool has_pairs) {
  return size == 8 || has_pairs ? 6 : 8;
}
constexpr int kCodedBackwardOctets = 2;

// A gated linear unit in general, backward, in blocks as small: accesses of three vectors that are
// loaded at a time, and blocks. A thread has sums as well: with 28 warps in place of 24 half of the
// gates would spill 8 to 32 bytes. Float64, pairs of floats and spaced elements need more
// registers.
constexpr int glu_sum_accesses(int number_bytes) { return number_bytes == 8 ? 1 : 2; }
constexpr int glu_sum_blocks_per_processor(int number_bytes, bool has_pairs, bool are_spaced) {
  if (number_bytes == 8 || are_spaced) return 4;
  return has_pairs ? 5 : 6;
}

// In a small tensor, one row for each warp reaches more processors.
constexpr int64_t kSmallBytes = int64_t{1} << 21;

// Elements that a thread loads before it computes, where there are no vectors.
constexpr int kElements = 4;

// Below half a segment most of a warp would have no part of a row.
constexpr int64_t kLeastRowBytes = kSegmentBytes / 2;

}  // namespace gelu_kernels::cuda

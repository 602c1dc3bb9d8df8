// The numbers that say how a kernel is laid over a GPU. They change its speed and no result.
#pragma once

#include <cstdint>

namespace gelu_kernels::cuda {

constexpr int kVectorBytes = 16;  // one access of a thread
constexpr int kWarp = 32;
constexpr int kSegmentBytes = kWarp * kVectorBytes;  // one access of a warp

// 8 warps a block: blocks that are small start and end without leaving a processor idle.
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;

// Rows that a thread loads before it computes, and blocks that a processor is to have room for. A
// bandwidth of 3 TB/s times a latency of 0.7 us asks for 16 kB in flight on each of an H100's 132
// processors. Four blocks of 256 threads with 4 vectors are 64 kB; they leave a thread 64
// registers. With more operands there are fewer rows; three inputs, or column sums, also need more
// registers, and so does a bias in 16 bits beside pairs of floats.
constexpr int rows_in_flight(int inputs) { return inputs == 1 ? 4 : inputs == 2 ? 2 : 1; }
constexpr int blocks_per_processor(int inputs) { return inputs <= 2 ? 4 : 3; }
constexpr int kBiasedPairsBlocksPerProcessor = 3;
constexpr int kScaledBlocksPerProcessor = 2;  // with a location and a scale 3 would spill 64 bytes
constexpr int kColumnSumRows = 2;
constexpr int kColumnSumBlocksPerProcessor = 2;

// The SOI map: bytes of the mask that a thread has. It loads all of their elements before it
// computes and makes the keys of their random words once. With more, registers run out.
constexpr int kOctets = 2;
constexpr int kOctetBlocksPerProcessor = 4;
// With a location and a scale, or with dropout, for elements of so many bytes: with more, registers
// run out.
constexpr int parameter_octet_blocks_per_processor(int size) { return size == 8 ? 2 : 3; }
// Dropout, for so many inputs: of other elements than 16-bit ones, or three inputs, one byte.
constexpr int dropout_octets(int inputs, int size) { return inputs * size <= 4 ? kOctets : 1; }

// Where the derivative is coded: the value and the derivative are two formulas. In float64 three
// blocks would spill 16 bytes; else a thread takes up to 80 registers, and 24 kB are in flight.
constexpr int coded_octet_blocks_per_processor(int size) { return size == 8 ? 2 : 3; }

// In a small tensor, one row for each warp reaches more processors.
constexpr int64_t kSmallBytes = int64_t{1} << 21;

// Elements that a thread loads before it computes, where there are no vectors.
constexpr int kElements = 4;

// Below half a segment most of a warp would have no part of a row.
constexpr int64_t kLeastRowBytes = kSegmentBytes / 2;

}  // namespace gelu_kernels::cuda

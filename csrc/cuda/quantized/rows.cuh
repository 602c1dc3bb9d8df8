// Passes whose results have a scale for each row. A block of threads computes a row and keeps the
// rounded results in registers until their largest magnitude is known; the results of a longer row
// it computes twice.
#pragma once

#include "csrc/cuda/launch.h"
#include "csrc/cuda/quantized/float8.h"
#include "csrc/cuda/quantized/function.cuh"
#include "csrc/cuda/quantized/magnitudes.h"
#include "csrc/gates/quantized.h"

namespace gelu_kernels::cuda {

// Of a thread: with more, registers run out. Two results take twice as many.
constexpr int kRowVectors = 4;
template <int outputs>
constexpr int kRowThreads = outputs == 2 ? 512 : 1024;

template <class Function, class Precision, int kColumns>
__global__ void __launch_bounds__(kRowThreads<Function::outputs>)
    quantize_rows(const __grid_constant__ QuantizedOperands m, QuantizedNumbers numbers) {
  using Map = QuantizedFunction<Function, Precision, kColumns>;
  using V = typename Map::V;
  using T = typename V::T;
  using M = Magnitudes<Precision>;
  constexpr int inputs = Map::inputs, outputs = Map::outputs;
  const Quantization& q = m.quantization;
  const int64_t row = blockIdx.x;
  const char* from[inputs];
#pragma unroll
  for (int k = 0; k < inputs; ++k) from[k] = m.in[k].data + row * m.in[k].row_stride;
  const auto vectors = static_cast<uint32_t>(m.columns / V::size);
  const uint32_t step = blockDim.x * kRowVectors;
  const uint32_t lane = threadIdx.x % kWarp;
  __shared__ uint32_t of_warps[outputs][kWarp];
  if constexpr (is_glu<Function>) {
    if (m.weight) {
      numbers.weight = Storage<Precision>::load(reinterpret_cast<const T*>(m.weight)[row]);
    }
  }

  V y[kRowVectors][outputs];
  uint32_t words[outputs] = {};
  float inverses[outputs] = {};
#pragma unroll 1
  for (bool is_known = false;; is_known = true) {
#pragma unroll 1
    for (uint32_t begin = threadIdx.x; begin < vectors; begin += step) {
      // f(i) for the thread's vectors from there on, otherwise(i) where there is none.
      const auto for_vectors = [&](auto f, auto otherwise) {
        if (begin + (kRowVectors - 1) * blockDim.x < vectors) {
#pragma unroll
          for (int i = 0; i < kRowVectors; ++i) f(i, begin + i * blockDim.x);
        } else {
#pragma unroll
          for (int i = 0; i < kRowVectors; ++i) {
            const uint32_t vector = begin + i * blockDim.x;
            vector < vectors ? f(i, vector) : otherwise(i);
          }
        }
      };
      if (!is_known || vectors > step) {
        V in[kRowVectors][inputs], bias[kRowVectors];
#pragma unroll
        for (int i = 0; i < kRowVectors; ++i) bias[i] = no_bias<Precision>();
        for_vectors(
            [&](int i, uint32_t vector) {
#pragma unroll
              for (int k = 0; k < inputs; ++k) {
                in[i][k] =
                    V::load(reinterpret_cast<const T*>(from[k]) + uint64_t{vector} * V::size);
              }
              if (kColumns == 1 && m.bias) {
                bias[i] = V::load(reinterpret_cast<const T*>(m.bias) + uint64_t{vector} * V::size);
              }
            },
            [&](int i) {
#pragma unroll
              for (int k = 0; k < inputs; ++k) in[i][k] = {};
            });
#pragma unroll
        for (int i = 0; i < kRowVectors; ++i) {
          typename Map::Along along;
          bias[i].unpack(along);
          Map::apply(y[i], in[i], along, numbers);
        }
      }
      const auto none = [](int) {};
      if (is_known) {
        const auto store = [&](auto format) {
          for_vectors(
              [&](int i, uint32_t vector) {
#pragma unroll
                for (int r = 0; r < outputs; ++r) {
                  const QuantizedMatrix& to = q.results[r].rows;
                  float x[V::size];
                  y[i][r].unpack(x);
#pragma unroll
                  for (int j = 0; j < V::size; ++j) x[j] *= inverses[r];
                  Bytes<Precision>::template round<decltype(format)>(x).store(
                      to.data + row * to.row_stride + uint64_t{vector} * V::size);
                }
              },
              none);
        };
        q.is_e5m2 ? store(e5m2()) : store(e4m3fn());
      } else {
        // With a bias, y is not zero where there is no vector.
        for_vectors(
            [&](int i, uint32_t) {
#pragma unroll
              for (int r = 0; r < outputs; ++r) {
                words[r] = M::larger(words[r], M::of_row(y[i][r]));
              }
            },
            none);
      }
    }
    if (is_known) return;
    if (outputs == 2 && q.results[0].rows.scales == q.results[1].rows.scales) {  // halves
      words[0] = words[outputs - 1] = M::larger(words[0], words[outputs - 1]);
    }
#pragma unroll
    for (int r = 0; r < outputs; ++r) {
      const uint32_t of_warp = M::over_warp(words[r]);
      if (lane == 0) of_warps[r][threadIdx.x / kWarp] = of_warp;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < outputs; ++r) {
      const QuantizedMatrix& to = q.results[r].rows;
      const uint32_t of_lane = lane < blockDim.x / kWarp ? of_warps[r][lane] : 0;
      const StoredScale found = StoredScale::of(q, __reduce_max_sync(kAllLanes, of_lane));
      inverses[r] = found.inverse;
      if (threadIdx.x == 0) found.store(q, to.scales, to.layout.place<int64_t>(row, 0));
    }
  }
}

template <class Kernels, class Function, class Precision, int kColumns>
Error launch_quantize_rows(Queue queue, const QuantizedOperands& m) {
  using Map = QuantizedFunction<Function, Precision, kColumns>;
  constexpr int warp_columns = kWarp * kRowVectors * Map::V::size;
  const int64_t warps = (m.columns + warp_columns - 1) / warp_columns;
  const int threads = static_cast<int>(std::min<int64_t>(warps * kWarp, kRowThreads<Map::outputs>));
  return launch<Kernels>(queue, quantize_rows<Function, Precision, kColumns>, m.rows, threads, m,
                         QuantizedNumbers(m));
}

}  // namespace gelu_kernels::cuda

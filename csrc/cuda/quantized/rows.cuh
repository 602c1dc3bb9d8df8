// Passes whose results have a scale for each row. A block of threads computes a row and keeps the
// rounded results in registers until their largest magnitude is known; the results of a longer row
// it computes twice.
#pragma once

#include "csrc/cuda/launch.h"
#include "csrc/cuda/map_rows.cuh"
#include "csrc/cuda/quantized/float8.h"
#include "csrc/cuda/quantized/magnitudes.h"
#include "csrc/gates/quantized.h"

namespace gelu_kernels::cuda {

constexpr int kRowVectors = 4;  // of a thread: with more, registers run out
constexpr int kRowThreads = 1024;

template <class Function, class Precision, int kColumns>
__global__ void __launch_bounds__(kRowThreads)
    quantize_rows(const __grid_constant__ QuantizedOperands m) {
  using Map = RowMap<Function, Precision, kColumns>;
  using V = typename Map::V;
  using T = typename V::T;
  using M = Magnitudes<Precision>;
  constexpr int inputs = Map::inputs;
  const Quantization& q = m.quantization;
  const QuantizedMatrix& rows = q.results[0].rows;
  const int64_t row = blockIdx.x;
  const char* from[inputs];
#pragma unroll
  for (int k = 0; k < inputs; ++k) from[k] = m.in[k].data + row * m.in[k].row_stride;
  uint8_t* const to = rows.data + row * rows.row_stride;
  const auto vectors = static_cast<uint32_t>(m.columns / V::size);
  const uint32_t step = blockDim.x * kRowVectors;
  const uint32_t lane = threadIdx.x % kWarp;
  __shared__ uint32_t of_warps[kWarp];

  V y[kRowVectors];
  uint32_t word = 0;
  float inverse = 0;
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
          bias[i].unpack(along[0]);
          V out[1];
          Map::apply(out, in[i], along, std::make_index_sequence<inputs>(),
                     std::make_index_sequence<kColumns>());
          y[i] = out[0];
        }
      }
      const auto none = [](int) {};
      if (is_known) {
        const auto store = [&](auto format) {
          for_vectors(
              [&](int i, uint32_t vector) {
                float x[V::size];
                y[i].unpack(x);
#pragma unroll
                for (int j = 0; j < V::size; ++j) x[j] *= inverse;
                Bytes<Precision>::template round<decltype(format)>(x).store(to + uint64_t{vector} *
                                                                                     V::size);
              },
              none);
        };
        q.is_e5m2 ? store(e5m2()) : store(e4m3fn());
      } else {
        // With a bias, y is not zero where there is no vector.
        for_vectors([&](int i, uint32_t) { word = M::larger(word, M::of_row(y[i])); }, none);
      }
    }
    if (is_known) return;
    const uint32_t of_warp = M::over_warp(word);
    if (lane == 0) of_warps[threadIdx.x / kWarp] = of_warp;
    __syncthreads();
    const uint32_t of_lane = lane < blockDim.x / kWarp ? of_warps[lane] : 0;
    const FloatScale found = float_scale_of(__reduce_max_sync(kAllLanes, of_lane), q.largest);
    inverse = found.inverse;
    if (threadIdx.x == 0) {
      reinterpret_cast<float*>(rows.scales)[row * rows.layout.row_stride] = found.scale;
    }
  }
}

template <class Kernels, class Function, class Precision, int kColumns>
Error launch_quantize_rows(Queue queue, const QuantizedOperands& m) {
  constexpr int warp_columns = kWarp * kRowVectors * Vector<Precision>::size;
  const int64_t warps = (m.columns + warp_columns - 1) / warp_columns;
  const int threads = static_cast<int>(std::min<int64_t>(warps * kWarp, kRowThreads));
  return launch<Kernels>(queue, quantize_rows<Function, Precision, kColumns>, m.rows, threads, m);
}

}  // namespace gelu_kernels::cuda

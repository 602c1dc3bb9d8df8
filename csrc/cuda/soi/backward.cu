// The gradient of the SOI map: its mask selects elements of dy.
#include "csrc/cuda/launch.h"
#include "csrc/cuda/octet.h"

namespace gelu_kernels::cuda {
namespace {

template <class T>
__device__ __forceinline__ void select_elements(const SoiBackwardOperands& m, const Octets& octets,
                                                int64_t octet) {
  const int64_t begin = octet * kOctet;
  const int left = static_cast<int>(min(octets.elements - begin, int64_t{kOctet}));
  const uint32_t mask = m.mask[octet];
  Cursor here(begin, octets.columns);
#pragma unroll 1
  for (int i = 0; i < left; ++i) {
    const T dy = *reinterpret_cast<const T*>(tile_at(m.dy, here.row, here.column).data);
    *reinterpret_cast<T*>(tile_at(m.dx, here.row, here.column).data) = mask >> i & 1 ? dy : T(0);
    here.advance(octets.columns);
  }
}

template <class Precision>
__global__ void __launch_bounds__(kThreads)
    select_vectors(const __grid_constant__ SoiBackwardOperands m,
                   const __grid_constant__ Octets octets) {
  using T = StorageOf<Precision>;
  using V = Vector<Precision>;
  const uint32_t first = blockIdx.x * (kOctets * kThreads) + threadIdx.x;
  if (first + (kOctets - 1) * kThreads >= octets.in_vectors) {
#pragma unroll 1
    for (int i = 0; i < kOctets; ++i) {
      const uint32_t octet = first + i * kThreads;
      if (octet < octets.count()) select_elements<T>(m, octets, octet);
    }
    return;
  }
  Octet<Precision> dy[kOctets];
  uint32_t mask[kOctets];
#pragma unroll
  for (int i = 0; i < kOctets; ++i) {
    dy[i] = Octet<Precision>::load(octets.at<T>(m.dy, first + i * kThreads));
    mask[i] = m.mask[first + i * kThreads];
  }
#pragma unroll
  for (int i = 0; i < kOctets; ++i) {
#pragma unroll
    for (int k = 0; k < Octet<Precision>::count; ++k) {
      bool kept[V::size];
#pragma unroll
      for (int j = 0; j < V::size; ++j) kept[j] = mask[i] >> (k * V::size + j) & 1;
      dy[i].vectors[k] = dy[i].vectors[k].select(kept);
    }
    dy[i].store(octets.at<T>(m.dx, first + i * kThreads));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    select_octets(const __grid_constant__ SoiBackwardOperands m,
                  const __grid_constant__ Octets octets) {
  const int64_t octet = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (octet < octets.count()) select_elements<T>(m, octets, octet);
}

template <class Precision>
Error launch_soi_backward(Queue queue, const SoiBackwardOperands& m) {
  using T = StorageOf<Precision>;
  const Octets octets =
      octets_of(m.rows, m.columns, has_vectors(m.dx, sizeof(T)) && has_vectors(m.dy, sizeof(T)));
  constexpr auto of_vectors = select_vectors<Precision>;
  constexpr auto of_elements = select_octets<T>;
  using Kernels = KernelSet<of_vectors, of_elements>;
  const auto kernel = octets.in_vectors ? of_vectors : of_elements;
  const int64_t block = kThreads * (octets.in_vectors ? kOctets : 1) * kOctet;
  return launch<Kernels>(queue, kernel, (octets.elements + block - 1) / block, kThreads, m, octets);
}

template <class, class Precision>
struct Entry {
  static constexpr auto value = launch_soi_backward<Precision>;
};

}  // namespace

Error (*soi_backward(Dtype dtype))(Queue, const SoiBackwardOperands&) {
  return find<Entry>(Gate{}, dtype);
}

}  // namespace gelu_kernels::cuda

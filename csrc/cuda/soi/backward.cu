// The gradient of the SOI map: its mask selects elements of dy.
#include "csrc/cuda/launch.h"
#include "csrc/cuda/soi/share.h"

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

// Four bytes of the mask for each of a warp's lanes, or its first ones, are all that the warp
// needs: 128 bytes at once take less of a memory's time than 32 at a time.
template <class Precision>
__global__ void __launch_bounds__(kSoiThreads, kSoiBackwardBlocksPerProcessor)
    select_vectors(const __grid_constant__ SoiBackwardOperands m,
                   const __grid_constant__ Octets octets) {
  using T = StorageOf<Precision>;
  using V = Vector<Precision>;
  using Here = Share<Precision>;
  const uint32_t begin = blockIdx.x * Here::octets, end = begin + Here::octets;
  if (end > octets.in_vectors) {
#pragma unroll 1
    for (uint32_t octet = begin + threadIdx.x; octet < end; octet += kSoiThreads) {
      if (octet < octets.count()) select_elements<T>(m, octets, octet);
    }
    return;
  }
  constexpr int kWords = Here::warp_octets / 4;
  V dy[kSoiBackwardVectors];
#pragma unroll
  for (int i = 0; i < kSoiBackwardVectors; ++i) dy[i] = V::load(Here(i).in(m.dy, octets));
  const uint32_t own_word =
      reinterpret_cast<const uint32_t*>(m.mask + Here::first_of_warp())[threadIdx.x % kWords];
#pragma unroll
  for (int i = 0; i < kSoiBackwardVectors; ++i) {
    const Here here(i);
    const uint32_t word = __shfl_sync(~0u, own_word, here.of_warp / 4);
    const uint32_t bits = word >> (here.of_warp % 4 * kOctet + here.part * V::size);
    bool kept[V::size];
#pragma unroll
    for (int j = 0; j < V::size; ++j) kept[j] = bits >> j & 1;
    dy[i].select(kept).store(here.in(m.dx, octets));
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
      octets_of(m.rows, m.columns,
                has_vectors(m.dx, m.rows, sizeof(T)) && has_vectors(m.dy, m.rows, sizeof(T)) &&
                    reinterpret_cast<uintptr_t>(m.mask) % sizeof(uint32_t) == 0);
  constexpr auto of_vectors = select_vectors<Precision>;
  constexpr auto of_elements = select_octets<T>;
  using Kernels = KernelSet<of_vectors, of_elements>;
  const auto kernel = octets.in_vectors ? of_vectors : of_elements;
  const int threads = octets.in_vectors ? kSoiThreads : kThreads;
  const int64_t block = kOctet * (octets.in_vectors ? Share<Precision>::octets : kThreads);
  return launch<Kernels>(queue, kernel, (octets.elements + block - 1) / block, threads, m, octets);
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

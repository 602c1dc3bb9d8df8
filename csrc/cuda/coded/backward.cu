// The product of dy and the coded derivative.
#include "csrc/cuda/coded/octet_codes.h"
#include "csrc/cuda/launch.h"

namespace gelu_kernels::cuda {
namespace {

template <class Precision>
__device__ __forceinline__ void multiply_elements(const CodedBackwardOperands& m,
                                                  const Octets& octets, int64_t octet) {
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;
  using S = Storage<Precision>;
  const int64_t begin = octet * kOctet;
  const int left = static_cast<int>(min(octets.elements - begin, int64_t{kOctet}));
  Cursor here(begin, octets.columns);
#pragma unroll 1
  for (int i = 0; i < left; ++i) {
    const uint32_t code = load_code(m.code, begin + i, m.decoder.codebook.bits);
    const Real factor = m.decoder.factor<Real>(static_cast<int32_t>(code));
    const T dy = *reinterpret_cast<const T*>(tile_at(m.dy, here.row, here.column).data);
    *reinterpret_cast<T*>(tile_at(m.dx, here.row, here.column).data) =
        S::store(S::load(dy) * factor);
    here.advance(octets.columns);
  }
}

// Of elements of any layout, as octets that are not in vectors go one by one.
template <class Precision>
__global__ void __launch_bounds__(kMapThreads,
                                  coded_blocks_per_processor(sizeof(StorageOf<Precision>),
                                                             kPacked<typename Precision::Real> > 1))
    multiply_octets(const __grid_constant__ CodedBackwardOperands m,
                    const __grid_constant__ Octets octets) {
  using T = StorageOf<Precision>;
  using V = Vector<Precision>;
  using Real = typename Precision::Real;
  const int64_t first = int64_t{blockIdx.x} * (kCodedBackwardOctets * kMapThreads) + threadIdx.x;
  if (first + (kCodedBackwardOctets - 1) * kMapThreads >= octets.in_vectors) {
#pragma unroll 1
    for (int i = 0; i < kCodedBackwardOctets; ++i) {
      const int64_t octet = first + i * kMapThreads;
      if (octet < octets.count()) multiply_elements<Precision>(m, octets, octet);
    }
    return;
  }
  Octet<Precision> dy[kCodedBackwardOctets];
  uint64_t codes[kCodedBackwardOctets];
#pragma unroll
  for (int i = 0; i < kCodedBackwardOctets; ++i) {
    const uint32_t octet = static_cast<uint32_t>(first) + i * kMapThreads;
    dy[i] = Octet<Precision>::load(octets.at<T>(m.dy, octet));
    codes[i] = load_codes<kOctet>(m.code, int64_t{octet} * kOctet, m.decoder.codebook.bits);
  }
#pragma unroll
  for (int i = 0; i < kCodedBackwardOctets; ++i) {
#pragma unroll
    for (int k = 0; k < Octet<Precision>::count; ++k) {
      Real numbers[V::size];
      dy[i].vectors[k].unpack(numbers);
#pragma unroll
      for (int j = 0; j < V::size; ++j) {
        const uint32_t code = code_of(codes[i], k * V::size + j);
        numbers[j] *= m.decoder.factor<Real>(static_cast<int32_t>(code));
      }
      dy[i].vectors[k] = V::round(numbers);
    }
    dy[i].store(octets.at<T>(m.dx, static_cast<uint32_t>(first) + i * kMapThreads));
  }
}

template <class Precision>
Error launch_coded_backward(Queue queue, const CodedBackwardOperands& m) {
  constexpr int64_t size = sizeof(StorageOf<Precision>);
  constexpr auto kernel = multiply_octets<Precision>;
  const Octets octets = octets_of(m.rows, m.columns,
                                  has_whole_words(m.code) && has_vectors(m.dx, m.rows, size) &&
                                      has_vectors(m.dy, m.rows, size));
  constexpr int64_t block = kMapThreads * kCodedBackwardOctets * kOctet;
  return launch<KernelSet<kernel>>(queue, kernel, (octets.elements + block - 1) / block,
                                   kMapThreads, m, octets);
}

template <class, class Precision>
struct Entry {
  static constexpr auto value = launch_coded_backward<Precision>;
};

}  // namespace

Error (*coded_backward(Dtype dtype))(Queue, const CodedBackwardOperands&) {
  return find<Entry>(Gate{}, dtype);
}

}  // namespace gelu_kernels::cuda

// The second stage of column sums, the sums over the blocks of rows, as a kernel of its own.
#include "csrc/cuda/launch.h"
#include "csrc/cuda/tuning.h"
#include "csrc/gates/column_sums.h"
#include "csrc/gates/storage.h"

namespace gelu_kernels::cuda {
namespace {

template <class Precision>
__global__ void __launch_bounds__(kWarp* kBlockLanes)
    add_partial_sums(const typename Precision::Real* partial, int64_t blocks,
                     StorageOf<Precision>* out, int64_t columns) {
  using Real = typename Precision::Real;
  const int lane = threadIdx.x / kWarp, offset = threadIdx.x % kWarp;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + offset;
  Real sum = 0;
  wait_for_primary();
  if (column < columns) {
#pragma unroll 4
    for (int64_t block = lane; block < blocks; block += kBlockLanes) {
      sum += partial[block * columns + column];
    }
  }
  __shared__ Real sums[kBlockLanes][kWarp];
  sums[lane][offset] = sum;
  __syncthreads();
  if (lane > 0 || column >= columns) return;
  Real total = sums[0][offset];
  for (int i = 1; i < kBlockLanes; ++i) total += sums[i][offset];
  out[column] = Storage<Precision>::store(total);
}

template <class, class Precision>
struct AddPartialSumsOf {
  using Kernels = KernelSet<add_partial_sums<Precision>>;

  static int load(int device) { return Kernels::load(device); }
  static Error add(Queue queue, const PartialSums& m) {
    using Real = typename Precision::Real;
    return launch_dependent<Kernels>(queue, add_partial_sums<Precision>,
                                     (m.columns + kWarp - 1) / kWarp, kWarp * kBlockLanes,
                                     static_cast<const Real*>(m.partial), m.blocks,
                                     reinterpret_cast<StorageOf<Precision>*>(m.sums), m.columns);
  }
  static constexpr AddPartialSums value = {load, add};
};

}  // namespace

AddPartialSums add_partial_sums(Dtype dtype) { return find<AddPartialSumsOf>(Gate{}, dtype); }

}  // namespace gelu_kernels::cuda

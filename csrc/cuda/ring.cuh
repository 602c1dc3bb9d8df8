// The parts of rows that a thread loads some rows ahead of their use.
#pragma once

#include "csrc/cuda/part.h"

namespace gelu_kernels::cuda {

// Rows in places that later rows take in turn. A row has several operands.
template <class Part, int places, int operands>
class Ring {
 public:
  __device__ __forceinline__ void load(int place, int operand, const char* first, int64_t stride,
                                       int columns) {
    parts_[place][operand] = Part::load(first, stride, columns);
  }
  __device__ __forceinline__ void end_row() {}
  __device__ __forceinline__ void wait() const {}
  __device__ __forceinline__ Part at(int place, int operand) const {
    return parts_[place][operand];
  }

 private:
  Part parts_[places][operands];
};

// Vectors are copied to shared memory, where a thread reads what it copied itself. In registers a
// thread would wait for the newest row as well as for the oldest, as the compiler has them all on
// one scoreboard.
template <class Precision, int places, int operands>
class Ring<Consecutive<Precision>, places, operands> {
 public:
  __device__ __forceinline__ Ring() {
    __shared__ uint4 memory[places * operands * kThreads];
    own_ = memory + threadIdx.x;
  }
  __device__ __forceinline__ void load(int place, int operand, const char* first, int64_t, int) {
    const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(own(place, operand)));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(first) : "memory");
  }
  // After the loads of a row, even if there are none: rows are waited for by their number.
  __device__ __forceinline__ void end_row() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  // For the oldest row.
  __device__ __forceinline__ void wait() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(places - 1) : "memory");
  }
  __device__ __forceinline__ Consecutive<Precision> at(int place, int operand) const {
    return {*own(place, operand)};
  }

 private:
  __device__ __forceinline__ uint4* own(int place, int operand) const {
    return own_ + (place * operands + operand) * kThreads;
  }
  uint4* own_;
};

}  // namespace gelu_kernels::cuda

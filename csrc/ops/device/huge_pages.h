// Huge pages for the large results of the CPU kernels.
#pragma once

#include <ATen/core/Tensor.h>

#ifdef __linux__
#include <sys/mman.h>

#include <cstdint>
#endif

namespace gelu_kernels {

// A large result is fresh memory from the system. With 4 kB pages, the page faults of the first
// write took more time than the write and all arithmetic: 30 of 69 ms for 64 MiB of float32. Huge
// pages cut these 30 ms to 14. NumPy asks for them from the same size on. All of the memory will be
// written, so none is wasted.
//
// A virtual machine may give free memory back to its host, and then waits for pages of either size.
// On a busy one we measured 60 first writes to 64 MiB by one thread (in parentheses: two threads);
// the median, 90th percentile and maximum were 24, 28 and 122 ms (36, 49 and 234) with huge pages,
// and 76, 81 and 118 ms (87, 99 and 137) with 4 kB pages. Keeping one freed result for the next
// would take 13 ms (18), but 24 ms (33) where four are alive at a time, and would hold memory that
// nobody else can use.
constexpr int64_t kHugePageBytes = int64_t{1} << 21, kLargeBytes = 2 * kHugePageBytes;

inline void ask_for_huge_pages([[maybe_unused]] const at::Tensor& t) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  const auto begin = reinterpret_cast<uintptr_t>(t.const_data_ptr());
  const uintptr_t first = (begin + kHugePageBytes - 1) & -uintptr_t{kHugePageBytes};
  const uintptr_t last = (begin + t.nbytes()) & -uintptr_t{kHugePageBytes};
  // Advice: where the system has no huge pages, nothing is lost.
  madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

inline at::Tensor in_huge_pages(at::Tensor t) {
  if (t.nbytes() >= kLargeBytes) ask_for_huge_pages(t);
  return t;
}

}  // namespace gelu_kernels

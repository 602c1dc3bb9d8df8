// Records what torch allocates on the CPU, and overwrites it. Torch's own allocator does the work.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <map>
#include <mutex>

#include "block.h"

namespace ptx {
namespace {

std::mutex recording;
std::map<uintptr_t, uintptr_t> ends;  // by where allocations begin

c10::Allocator* torchs;

// malloc's largest M_MMAP_THRESHOLD. Larger memory is new from Linux, all zeros, and stays so: some
// tests ask for gigabytes and touch little of them.
constexpr size_t kMostReused = size_t{32} << 20;

struct Recorder : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* const data = torchs->raw_allocate(bytes);
    if (data) {
      // NaN or -1: else a result that no kernel writes may have an earlier tensor's right bits.
      if (bytes <= kMostReused) std::memset(data, 0xff, bytes);
      const std::lock_guard lock(recording);
      const auto begin = reinterpret_cast<uintptr_t>(data);
      ends[begin] = begin + bytes;
    }
    return {data, data, forget, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return forget; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  static void forget(void* data) {
    {
      const std::lock_guard lock(recording);
      ends.erase(reinterpret_cast<uintptr_t>(data));
    }
    torchs->raw_deallocate(data);
  }
};

}  // namespace

Region allocation_of(uintptr_t address) {
  const std::lock_guard lock(recording);
  const auto after = ends.upper_bound(address);
  if (after == ends.begin()) return {};
  const auto [begin, end] = *std::prev(after);
  return address < end ? Region{begin, end} : Region{};
}

}  // namespace ptx

extern "C" __attribute__((visibility("default"))) void ptx_record_allocations() {
  static ptx::Recorder recorder;
  if (!ptx::torchs) ptx::torchs = c10::GetCPUAllocator();
  c10::SetCPUAllocator(&recorder, /*priority=*/1);
}

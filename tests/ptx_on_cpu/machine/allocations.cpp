// Records what torch allocates on the CPU. Its own allocator does the work.
#include "allocations.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <map>
#include <mutex>

namespace ptx {
namespace {

std::mutex recording;
std::map<uintptr_t, uintptr_t> ends;  // by where allocations begin

struct Recorder : c10::Allocator {
  struct Owner {
    c10::DataPtr memory;
  };

  explicit Recorder(c10::Allocator* allocator) : allocator(allocator) {}

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr memory = allocator->allocate(bytes);
    void* const data = memory.get();
    if (!data) return memory;
    const auto begin = reinterpret_cast<uintptr_t>(data);
    {
      const std::lock_guard lock(recording);
      ends[begin] = begin + bytes;
    }
    const c10::Device device = memory.device();
    return {data, new Owner{std::move(memory)}, forget, device};
  }
  // Without this, torch takes the context of memory for the memory itself.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  static void forget(void* context) {
    auto* const owner = static_cast<Owner*>(context);
    {
      const std::lock_guard lock(recording);
      ends.erase(reinterpret_cast<uintptr_t>(owner->memory.get()));
    }
    delete owner;
  }

  c10::Allocator* allocator;
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
  static ptx::Recorder recorder(c10::GetCPUAllocator());
  c10::SetCPUAllocator(&recorder, /*priority=*/1);
}

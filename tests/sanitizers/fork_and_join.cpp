// OpenMP's fork and join, as ThreadSanitizer's words for them. Loaded ahead of libgomp, whose
// threads wait for each other by means that the sanitizer does not see. It is told no more than
// OpenMP promises: threads of one team are not ordered.
#include <dlfcn.h>

extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);

namespace {

struct Region {
  void (*function)(void*);
  void* data;
  long fork, join;  // their addresses stand for what is known there
};

void run(void* given) {
  auto* region = static_cast<Region*>(given);
  __tsan_acquire(&region->fork);
  region->function(region->data);
  __tsan_release(&region->join);
}

}  // namespace

// What g++ makes of `#pragma omp parallel`.
extern "C" void GOMP_parallel(void (*function)(void*), void* data, unsigned threads,
                              unsigned flags) {
  static const auto libgomps =
      reinterpret_cast<decltype(&GOMP_parallel)>(dlsym(RTLD_NEXT, "GOMP_parallel"));
  Region region = {function, data, 0, 0};
  __tsan_release(&region.fork);
  libgomps(run, &region, threads, flags);
  __tsan_acquire(&region.join);
}

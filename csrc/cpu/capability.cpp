// Picks the instruction set at run time.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "csrc/cpu/loops.h"

namespace gelu_kernels::cpu {

extern const Loops baseline[][4];
#ifdef GELU_KERNELS_X86
extern const Loops avx2[][4];
extern const Loops avx512[][4];
#endif

namespace {

struct Build {
  const char* name;
  const Loops (*loops)[4];
  bool supported;
  const Loops (*small)[4] = loops;  // for less than kSmall elements
};

Build choose() {
#ifdef GELU_KERNELS_X86
  const Build builds[] = {
      {"avx512", avx512, __builtin_cpu_supports("x86-64-v4") != 0, avx2},
      {"avx2", avx2, __builtin_cpu_supports("x86-64-v3") != 0},
      {"default", baseline, true},
  };
#else
  const Build builds[] = {{"default", baseline, true}};
#endif
  const char* wanted = std::getenv("GELU_KERNELS_CPU_CAPABILITY");
  for (const Build& build : builds) {
    if (!wanted && build.supported) return build;
    if (!wanted || std::string(wanted) != build.name) continue;
    if (build.supported) return {build.name, build.loops, true};
    throw std::runtime_error(std::string("GELU_KERNELS_CPU_CAPABILITY=") + wanted +
                             ": this processor does not have it");
  }
  throw std::runtime_error(std::string("GELU_KERNELS_CPU_CAPABILITY must be one of ") +
                           built_capabilities() + ", got " + wanted);
}

const Build& chosen() {
  static const Build build = choose();
  return build;
}

// A few 512-bit multiplications lower the clock of the whole core for most of a millisecond, which
// a small call does not earn back: on a Xeon of 2019 a loop of forward and backward of 16 elements
// took 56.5 us a turn, and 51.5 us with 256-bit vectors, which give the same bits.
constexpr int64_t kSmall = 4096;

}  // namespace

const Loops& loops(Gate gate, Dtype dtype, int64_t elements) {
  const auto* table = elements < kSmall ? chosen().small : chosen().loops;
  return table[static_cast<int>(gate)][static_cast<int>(dtype)];
}

const char* built_capabilities() {
#ifdef GELU_KERNELS_X86
  return "avx512 avx2 default";
#else
  return "default";
#endif
}

const char* capability() { return chosen().name; }

}  // namespace gelu_kernels::cpu

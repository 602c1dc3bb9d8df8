// Picks the instruction set at run time.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "csrc/cpu/coded_loops.h"
#include "csrc/cpu/dropout_loops.h"
#include "csrc/cpu/glu_loops.h"
#include "csrc/cpu/loops.h"
#include "csrc/cpu/quantize_loops.h"
#include "csrc/cpu/soi_loops.h"

namespace gelu_kernels::cpu {

extern const Loops baseline[][4];
extern const CodedLoops coded_baseline[4];
extern const GluLoops glu_baseline[][4];
extern const SoiLoops soi_baseline[][4];
extern const QuantizeLoops quantize_baseline[2][2];
extern const DropoutLoops dropout_baseline[4];
#ifdef GELU_KERNELS_X86
extern const Loops avx2[][4];
extern const CodedLoops coded_avx2[4];
extern const GluLoops glu_avx2[][4];
extern const SoiLoops soi_avx2[][4];
extern const QuantizeLoops quantize_avx2[2][2];
extern const DropoutLoops dropout_avx2[4];
extern const Loops avx512[][4];
extern const CodedLoops coded_avx512[4];
extern const GluLoops glu_avx512[][4];
extern const SoiLoops soi_avx512[][4];
extern const QuantizeLoops quantize_avx512[2][2];
extern const DropoutLoops dropout_avx512[4];
#endif

namespace {

struct Tables {
  const Loops (*loops)[4];
  const CodedLoops* coded_loops;
  const GluLoops (*glu_loops)[4];
  const SoiLoops (*soi_loops)[4];
  const QuantizeLoops (*quantize_loops)[2];
  const DropoutLoops* dropout_loops;
};

struct Build {
  const char* name;
  Tables tables;
  bool supported;
  Tables small = tables;  // for less than kSmall elements
};

Build choose() {
#ifdef GELU_KERNELS_X86
  const Tables tables_256{avx2, coded_avx2, glu_avx2, soi_avx2, quantize_avx2, dropout_avx2};
  const Tables tables_512{avx512,     coded_avx512,    glu_avx512,
                          soi_avx512, quantize_avx512, dropout_avx512};
  const Tables tables_default{baseline,     coded_baseline,    glu_baseline,
                              soi_baseline, quantize_baseline, dropout_baseline};
  const Build builds[] = {
      {"avx512", tables_512, __builtin_cpu_supports("x86-64-v4") != 0, tables_256},
      {"avx2", tables_256, __builtin_cpu_supports("x86-64-v3") != 0},
      {"default", tables_default, true},
  };
#else
  const Tables tables_default{baseline,     coded_baseline,    glu_baseline,
                              soi_baseline, quantize_baseline, dropout_baseline};
  const Build builds[] = {{"default", tables_default, true}};
#endif
  const char* wanted = std::getenv("GELU_KERNELS_CPU_CAPABILITY");
  for (const Build& build : builds) {
    if (!wanted && build.supported) return build;
    if (!wanted || std::string(wanted) != build.name) continue;
    if (build.supported) return {build.name, build.tables, true};
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

// A few 512-bit multiplications lower the core's clock for most of a millisecond, which a small
// call does not earn back: on a Xeon of 2019, forward and backward of 16 elements took 56.5 us, and
// 51.5 us with 256-bit vectors. The bits are the same.
constexpr int64_t kSmall = 4096;

const Tables& tables_for(int64_t elements) {
  return elements < kSmall ? chosen().small : chosen().tables;
}

}  // namespace

#pragma GCC visibility push(default)  // the operators are in another library

const Loops& loops(Gate gate, Dtype dtype, int64_t elements) {
  return tables_for(elements).loops[static_cast<int>(gate)][static_cast<int>(dtype)];
}

const CodedLoops& coded_loops(Dtype dtype, int64_t elements) {
  return tables_for(elements).coded_loops[static_cast<int>(dtype)];
}

const GluLoops& glu_loops(Gate gate, Dtype dtype, int64_t elements) {
  return tables_for(elements).glu_loops[static_cast<int>(gate)][static_cast<int>(dtype)];
}

const SoiLoops& soi_loops(Gate gate, Dtype dtype, int64_t elements) {
  return tables_for(elements).soi_loops[static_cast<int>(gate)][static_cast<int>(dtype)];
}

const QuantizeLoops& quantize_loops(Dtype dtype, bool is_e5m2, int64_t elements) {
  return tables_for(elements).quantize_loops[dtype == Dtype::bfloat16][is_e5m2];
}

const DropoutLoops& dropout_loops(Dtype dtype, int64_t elements) {
  return tables_for(elements).dropout_loops[static_cast<int>(dtype)];
}

const char* built_capabilities() {
#ifdef GELU_KERNELS_X86
  return "avx512 avx2 default";
#else
  return "default";
#endif
}

const char* capability() { return chosen().name; }

#pragma GCC visibility pop

}  // namespace gelu_kernels::cpu

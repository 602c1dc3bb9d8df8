// What operators with a random mask share: its length, its checks, the numbers of dropout, and the
// seed that it is drawn with.
#pragma once

#include <ATen/core/Generator.h>

#include "csrc/ops/check.h"
#include "csrc/ops/operator.h"
#include "csrc/random/dropout.h"

namespace gelu_kernels {

// The length of a mask of a bit for each element, eight in a byte.
inline c10::SymInt mask_bytes(const at::Tensor& t) { return (t.sym_numel() + 7) / 8; }

// Checks of an operator that draws a mask.
void check_draw(const char* op, const at::Tensor& x, const at::Tensor& seed,
                const GlobalIndex& index);
// Checks that a mask has a bit for each element of an argument.
void check_mask(const char* op, const at::Tensor& mask, const Argument& of);

// The numbers of dropout with a probability p from 0 to 1.
void check_p(const char* op, double p);
double factor_of(double p);
// Nothing if every element is dropped.
std::optional<Dropout> dropout_of(double p);

// A random int64, at least 0, in place of an int64 scalar that was never written: aten::empty,
// which compilers do not merge with another, keeps two calls apart. gelu_kernels/random_seed.py has
// its rules for compilers, checkpoints and vmap.
struct RandomSeed
    : Operator<RandomSeed, Tensor(const Tensor&, const std::optional<at::Generator>&)> {
  static constexpr const char* schema =
      "random_seed(Tensor empty, *, Generator? generator=None) -> Tensor seed";
  static constexpr bool is_random = true;
  static Signature compute;
};

inline constexpr RandomSeed random_seed;

// What torch's random_seed of a GPU is, by the state of its generator.
C10_EXPORT int64_t seed_of_state(uint64_t generator_seed, uint64_t offset);

// A random_seed on the device of x. For a GPU it is computed here, and on the CPU, where no graph
// is being captured and nothing but a kernel will see the call: the kernel that would draw it
// takes 3.7 us, a tenth of an SOI map of 64 MiB on an H200.
at::Tensor draw_seed(const char* op, const at::Tensor& x,
                     const std::optional<at::Generator>& generator);

}  // namespace gelu_kernels

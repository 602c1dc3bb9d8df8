// What operators with a random mask share: its length, its checks, and the seed that it is drawn
// with.
#pragma once

#include <ATen/core/Generator.h>

#include "csrc/ops/check.h"
#include "csrc/random/philox.h"

namespace gelu_kernels {

// The length of a mask of a bit for each element, eight in a byte.
inline c10::SymInt mask_bytes(const at::Tensor& t) { return (t.sym_numel() + 7) / 8; }

// Of an operator that draws a mask.
void check_draw(const char* op, const at::Tensor& x, const at::Tensor& seed,
                const GlobalIndex& index);
// That a mask has a bit for each element of an argument.
void check_mask(const char* op, const at::Tensor& mask, const Argument& of);

// An int64 scalar on the device of x.
at::Tensor draw_seed(const char* op, const at::Tensor& x,
                     const std::optional<at::Generator>& generator);

}  // namespace gelu_kernels

// What operators with a random mask share: its length, its checks, the numbers of dropout, and the
// seed that it is drawn with.
#pragma once

#include <ATen/core/Generator.h>

#include "csrc/ops/check.h"
#include "csrc/random/dropout.h"

namespace gelu_kernels {

// The length of a mask of a bit for each element, eight in a byte.
inline c10::SymInt mask_bytes(const at::Tensor& t) { return (t.sym_numel() + 7) / 8; }

// Of an operator that draws a mask.
void check_draw(const char* op, const at::Tensor& x, const at::Tensor& seed,
                const GlobalIndex& index);
// That a mask has a bit for each element of an argument.
void check_mask(const char* op, const at::Tensor& mask, const Argument& of);

// Of dropout with a probability p, which is from 0 to 1.
void check_p(const char* op, double p);
double factor_of(double p);
// Nothing if every element is dropped.
std::optional<Dropout> dropout_of(double p);

// An int64 scalar on the device of x.
at::Tensor draw_seed(const char* op, const at::Tensor& x,
                     const std::optional<at::Generator>& generator);

}  // namespace gelu_kernels

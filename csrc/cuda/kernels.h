// The CUDA kernels as plain functions over device memory. They know nothing of torch, and this
// header nothing of CUDA; csrc/ops/device/cuda.h brings the tensors.
#pragma once

#include <cstdint>
#include <string>

#include "csrc/gates/coded.h"
#include "csrc/gates/column_sums.h"
#include "csrc/gates/gates.h"
#include "csrc/gates/glu_rows.h"
#include "csrc/gates/passes.h"
#include "csrc/gates/quantized.h"
#include "csrc/random/dropout.h"
#include "csrc/random/soi.h"

#pragma GCC visibility push(default)  // the operators are in another library

namespace gelu_kernels::cuda {

// An error of CUDA: its number, name and text; false if there is none.
struct Error {
  int code;
  const char *name, *text;
  bool lacks_binary;  // for the device

  explicit operator bool() const { return code != 0; }
};

// Where a kernel runs: a device and one of its streams, a cudaStream_t.
struct Queue {
  int device;
  void* stream;
};

// A device's name and its compute capability, such as "9.0".
struct Device {
  std::string name, capability;
};
Device describe(int device);

// Operands are counted from the outputs, one or two; then come the inputs, those that lie along the
// columns last.
constexpr int kMaxOperands = 5;

// Operands as rows of vectors: all data and strides are multiples of 16 bytes, and so are all rows
// but the last; with operands along the columns, the same in every row, the last one too.
struct Rows {
  char* data[kMaxOperands];
  int32_t row_stride[kMaxOperands];  // in bytes
  int32_t rows, columns;
  int32_t last_columns;  // the length of the last row
};

// Operands of any strides, with offsets under 2^31 bytes. The first dimension runs fastest.
constexpr int kMaxDims = 25;
struct Strided {
  char* data[kMaxOperands];
  int dims;
  uint32_t sizes[kMaxDims];
  uint32_t strides[kMaxOperands][kMaxDims];  // in bytes
};

// out = f(in0, ...), or two of them, for each element.
struct Map {
  Error (*rows)(Queue, const Rows&);
  Error (*strided)(Queue, const Strided&);
};

using BackwardColumnSums = Error (*)(Queue, const ColumnSums&);

// add() launches the kernel; load() loads it, onto the current device, and returns CUDA's error.
struct AddPartialSums {
  int (*load)(int device);
  Error (*add)(Queue, const PartialSums&);
};

// The passes, which csrc/gates/passes.h lists.
#define GELU_KERNELS_DECLARE(name, Function, takes_bias) \
  Map name(Gate gate, Dtype dtype, bool biased);
GELU_KERNELS_FOR_EACH_PASS(GELU_KERNELS_DECLARE)
#undef GELU_KERNELS_DECLARE

// A function, as an unoptimised build without CUDA would ask for the addresses in a constant.
constexpr Passes<Map (*)(Gate, Dtype, bool biased)> passes() {
#define GELU_KERNELS_ADDRESS(name, Function, takes_bias) name,
  return {GELU_KERNELS_FOR_EACH_PASS(GELU_KERNELS_ADDRESS)};
#undef GELU_KERNELS_ADDRESS
}

BackwardColumnSums backward_column_sums(Gate gate, Dtype dtype);
BackwardColumnSums cdf_column_sums(Gate gate, Dtype dtype);
AddPartialSums add_partial_sums(Dtype dtype);

Error (*glu_rows_forward(Gate gate, Dtype dtype))(Queue, const GluRows&);
Error (*glu_rows_backward(Gate gate, Dtype dtype))(Queue, const GluRows&);

// The passes whose results are quantised, in float32 and bfloat16. All data and row strides of the
// inputs, and the bias, are at multiples of 16 bytes, all columns consecutive. Before, amax is 0,
// and so is the padding of a swizzled layout.
using QuantizedPass = Error (*)(Queue, const QuantizedOperands&);
#define GELU_KERNELS_DECLARE(name) \
  QuantizedPass quantized_##name(Gate gate, Dtype dtype, bool biased);
GELU_KERNELS_FOR_EACH_QUANTIZED_PASS(GELU_KERNELS_DECLARE)
#undef GELU_KERNELS_DECLARE

constexpr QuantizedPasses<QuantizedPass (*)(Gate, Dtype, bool biased)> quantized_passes() {
#define GELU_KERNELS_ADDRESS(name) quantized_##name,
  return {GELU_KERNELS_FOR_EACH_QUANTIZED_PASS(GELU_KERNELS_ADDRESS)};
#undef GELU_KERNELS_ADDRESS
}

Error (*soi_forward(Gate gate, Dtype dtype))(Queue, const SoiForwardOperands&);
Error (*soi_cdf_forward(Gate gate, Dtype dtype))(Queue, const SoiForwardOperands&);
Error (*soi_backward(Dtype dtype))(Queue, const SoiBackwardOperands&);
BackwardColumnSums soi_backward_column_sums(Dtype dtype);

Error (*coded_forward(Gate gate, Dtype dtype))(Queue, const CodedForwardOperands&);
Error (*coded_backward(Dtype dtype))(Queue, const CodedBackwardOperands&);
BackwardColumnSums coded_backward_column_sums(Dtype dtype);
Error (*dropout_forward(Gate gate, Dtype dtype))(Queue, const DropoutForwardOperands&);
Error (*dropout_backward(Gate gate, Dtype dtype))(Queue, const DropoutBackwardOperands&);
Error (*glu_dropout_backward(Gate gate, Dtype dtype))(Queue, const DropoutBackwardOperands&);
BackwardColumnSums dropout_column_sums(Gate gate, Dtype dtype);

}  // namespace gelu_kernels::cuda

#pragma GCC visibility pop

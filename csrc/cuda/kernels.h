// The CUDA kernels as plain functions over device memory. They know nothing of torch, and this
// header nothing of CUDA; csrc/ops/cuda.cpp brings the tensors.
#pragma once

#include <cstdint>
#include <string>

#include "csrc/gates/column_sums.h"
#include "csrc/gates/gates.h"
#include "csrc/random/philox.h"

namespace gelu_kernels::cuda {

// What went wrong, in CUDA's number, name and words; false if nothing did.
struct Error {
  int code;
  const char *name, *text;
  bool lacks_binary;  // for the device

  explicit operator bool() const { return code != 0; }
};

// Where a kernel is put: a device and a cudaStream_t of its.
struct Queue {
  int device;
  void* stream;
};

// What a device is called, and its compute capability, such as "9.0".
struct Device {
  std::string name, capability;
};
Device describe(int device);

// Operands are counted from the outputs, one or two; then come the inputs, the bias last.
constexpr int kMaxOperands = 5;

// Operands as rows of vectors: all data and strides are multiples of 16 bytes, and so are all rows
// but the last. The bias is the same in every row.
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

// dx = dy·g'(x + bias), or dy where the mask is 1, and partial[block][j] = the sum of column j of
// the unrounded dx over a block of rows, in float (double for float64).
struct ColumnSums {
  Matrix dx, dy;
  Matrix x;          // not for a mask
  const char* bias;  // likewise; consecutive, like partial and dbias
  const uint8_t* mask;
  void* partial;
  char* dbias;
  int64_t rows, columns;
};
// The partial sums, then dbias, their sum over the blocks.
using BackwardColumnSums = Error (*)(Queue, const ColumnSums&);

Map forward(Gate gate, Dtype dtype, bool biased);          // y; x, bias
Map backward(Gate gate, Dtype dtype, bool biased);         // dx; dy, x, bias
Map double_backward(Gate gate, Dtype dtype, bool biased);  // dx; ddx, dy, x, bias
Map glu_forward(Gate gate, Dtype dtype);                   // y; x, up
Map glu_backward(Gate gate, Dtype dtype);                  // dx, dup; dy, x, up
BackwardColumnSums backward_column_sums(Gate gate, Dtype dtype);

// The SOI map. Elements are those of matrices in row-major order; the mask of element i is bit
// i % 8 of byte i / 8.

// y = m (x + bias) and the mask of m. Without a bias it is null.
struct SoiForward {
  Matrix y, x;
  const char* bias;  // consecutive
  uint8_t* mask;     // unused bits of the last byte become 0
  const int64_t* seed;
  GlobalIndex index;
  int64_t rows, columns;
};

// dx = dy where the mask is 1, else 0.
struct SoiBackward {
  Matrix dx, dy;
  const uint8_t* mask;
  int64_t rows, columns;
};

Error (*soi_forward(Gate gate, Dtype dtype))(Queue, const SoiForward&);
Error (*soi_backward(Dtype dtype))(Queue, const SoiBackward&);
BackwardColumnSums soi_backward_column_sums(Dtype dtype);

}  // namespace gelu_kernels::cuda

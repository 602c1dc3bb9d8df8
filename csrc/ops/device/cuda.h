// An NVIDIA GPU: tensors for the launchers of csrc/cuda.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <optional>
#include <type_traits>

#include "csrc/cuda/kernels.h"
#include "csrc/ops/device/cuda_rows.h"
#include "csrc/ops/layout.h"
#include "csrc/random/seed.h"

namespace gelu_kernels {

// Registers the kernels of all core operators for a dispatch key.
void register_cuda_kernels(torch::Library& library);

// The device of x and the caller's stream there.
cuda::Queue queue_of(const at::Tensor& x);

[[noreturn]] void fail(const char* op, int device, const cuda::Error& error);

// Starts a kernel on the device of x, on the caller's stream there.
template <class Operands>
void start(const char* op, const at::Tensor& x, cuda::Error (*launch)(cuda::Queue, const Operands&),
           const Operands& operands) {
  const c10::DeviceGuard guard(x.device());
  const cuda::Queue queue = queue_of(x);
  if (const auto error = launch(queue, operands)) fail(op, queue.device, error);
}

struct Cuda {
  static constexpr bool has_data = true;
  using Passes = decltype(cuda::passes());

  static at::Tensor empty_like(const at::Tensor& x) { return at::empty_like(x); }
  static at::Tensor empty_contiguous(const at::Tensor& x) {
    return at::empty(x.sizes(), x.options());
  }
  // On the device of x.
  static at::Tensor empty(const at::Tensor& x, at::IntArrayRef sizes, at::ScalarType dtype) {
    return at::empty(sizes, x.options().dtype(dtype));
  }

  // One on the device is read by the kernel, without waiting for it here.
  static Seed seed_of(const at::Tensor& seed);

  // Runs a pass over the elements of its outputs and then of its inputs, which broadcast to them.
  // `bias` is optional, or std::nullopt for a pass that takes none; the last `columns` of the
  // others lie along the columns, as it does.
  template <int outputs = 1, int columns = 0, class Pass, class Bias, class... Tensors>
  static void map(const char* op, Pass pass, Gate gate, const Bias& bias, const at::Tensor& out,
                  const Tensors&... operands) {
    const auto find = cuda::passes().*pass;
    if constexpr (!std::is_same_v<Bias, std::nullopt_t>) {
      if (bias) {
        return run<outputs, 1>(op, find(gate, dtype_of(out), true), out, operands..., *bias);
      }
    }
    run<outputs, columns>(op, find(gate, dtype_of(out), false), out, operands...);
  }

  static cuda::BackwardColumnSums column_sums(Gate gate, const at::Tensor& x) {
    return cuda::backward_column_sums(gate, dtype_of(x));
  }

  static cuda::BackwardColumnSums cdf_column_sums(Gate gate, const at::Tensor& x) {
    return cuda::cdf_column_sums(gate, dtype_of(x));
  }

  static void sum_columns(const char* op, const at::Tensor& dx, cuda::BackwardColumnSums kernel,
                          const ColumnSums& m) {
    start(op, dx, kernel, m);
  }
  // The sums have the dtype and the device of `like`.
  static void add_partial_sums(const char* op, const at::Tensor& like, const PartialSums& m) {
    start(op, like, cuda::add_partial_sums(dtype_of(like)).add, m);
  }

 private:
  // Tensors with the same dense layout are one long row.
  template <int outputs, int columns, class... Tensors>
  static void run(const char* op, cuda::Map kernel, const at::Tensor& out,
                  const Tensors&... operands) {
    if (out.numel() == 0) return;
    if (columns == 0 && lie_alike(out, operands...) && is_aligned(data_of(out), 0) &&
        (is_aligned(data_of(operands), 0) && ...)) {
      cuda::Rows m = segments_of(out.numel(), static_cast<int64_t>(out.element_size()));
      int k = 0;
      for (char* data : {data_of(out), data_of(operands)...}) {
        m.data[k] = data;
        m.row_stride[k++] = cuda::kSegmentBytes;
      }
      return start(op, out, kernel.rows, m);
    }
    const at::TensorIterator iterator = iterator_over<outputs>(out, operands...);
    if (const auto m = rows_of(iterator, columns)) return start(op, out, kernel.rows, *m);
    for (const at::TensorIterator& part : iterator.with_32bit_indexing()) {
      start(op, out, kernel.strided, strided(part));
    }
  }
};

}  // namespace gelu_kernels

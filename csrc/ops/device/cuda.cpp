// The CUDA kernels of all core operators, and their errors.
#include "csrc/ops/device/cuda.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "csrc/ops/operators.h"

namespace gelu_kernels {

void register_cuda_kernels(torch::Library& library) { CoreOperators::compute<Cuda>(library); }

// Reports a CUDA error as torch does.
void fail(const char* op, int device, const cuda::Error& error) {
  std::string what = c10::str("gelu_kernels::", op,
                              ": CUDA could not start the kernel: ", error.name, ": ", error.text);
  if (error.lacks_binary) {
    const auto [name, capability] = cuda::describe(device);
    what += c10::str(". cuda:", device, " is a ", name, " of compute capability ", capability,
                     ", the kernels are built by nvcc " GELU_KERNELS_CUDA
                     ". Build gelu_kernels again with TORCH_CUDA_ARCH_LIST=",
                     capability, ", or if Triton supports it, set GELU_KERNELS_BACKEND=triton.");
  }
  throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, error.code, what);
}

}  // namespace gelu_kernels

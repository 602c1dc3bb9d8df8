#include "csrc/ops/build_info.h"

#include <torch/version.h>

#include "csrc/cpu/loops.h"

namespace gelu_kernels {

std::vector<std::pair<std::string, std::string>> build_info() {
  return {{"compiler", GELU_KERNELS_COMPILER},
          {"torch", TORCH_VERSION},
          {"cpu_capabilities", cpu::built_capabilities()},
          {"cpu_capability", cpu::capability()},
          {"cuda", GELU_KERNELS_CUDA}};
}

}  // namespace gelu_kernels

// Runs a packaged model without Python: aot_inductor model.pt2 libgelu_kernels.so
//
// Prints the model's result for x = -4, -3.5, ..., 3.5 in two rows.
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s model.pt2 libgelu_kernels.so\n", argv[0]);
    return 2;
  }
  // Loading the library registers the operators that the model calls.
  if (!dlopen(argv[2], RTLD_NOW)) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  torch::inductor::AOTIModelPackageLoader model(argv[1]);
  const at::Tensor x = at::arange(-4, 4, 0.5, at::kFloat).view({2, 8});
  const at::Tensor y = model.run({x})[0].contiguous();
  for (int64_t i = 0; i < y.numel(); ++i) std::printf("%.9g\n", y.const_data_ptr<float>()[i]);
}

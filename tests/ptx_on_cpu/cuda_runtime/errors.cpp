// The errors that the stub or a test gives.
#include <cuda_runtime_api.h>

#include "export.h"

// What a kernel did, if it was stopped.
PTX_ON_CPU_EXPORT char ptx_on_cpu_fault[4096];
char ptx_on_cpu_fault[4096];

namespace {

struct Words {
  const char *name, *text;
};

Words words_of(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidConfiguration:
      return {"cudaErrorInvalidConfiguration", "invalid configuration argument"};
    case cudaErrorInvalidDevice:
      return {"cudaErrorInvalidDevice", "invalid device ordinal"};
    case cudaErrorNoKernelImageForDevice:
      return {"cudaErrorNoKernelImageForDevice",
              "no kernel image is available for execution on the device"};
    case cudaErrorLaunchFailure:
      return {"cudaErrorLaunchFailure", ptx_on_cpu_fault};
    case cudaErrorStreamCaptureUnsupported:
      return {"cudaErrorStreamCaptureUnsupported",
              "operation not permitted when stream is capturing"};
    default:
      return {"cudaErrorUnknown", "unknown error"};
  }
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) { return words_of(error).name; }

const char* cudaGetErrorString(cudaError_t error) { return words_of(error).text; }

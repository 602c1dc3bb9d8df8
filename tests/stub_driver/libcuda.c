// As much of NVIDIA's driver library as Triton's launcher asks for. Every device has the limits of
// an H100, and a launch is handed to on_launch, if that is set, instead of to a device.
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>

typedef CUresult (*OnLaunch)(const CUlaunchConfig*, CUfunction, void** parameters,
                             int is_dependent);

static OnLaunch on_launch;
static uintptr_t modules;  // each has one function, which has the same handle

static char failure[1000];  // Triton has room for 1,023

void stub_on_launch(OnLaunch f) { on_launch = f; }

// Why the next launch that fails does; by default NVIDIA's words.
void stub_failure(const char* text) { snprintf(failure, sizeof failure, "%s", text); }

static int is_dependent(const CUlaunchConfig* config) {
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      return config->attrs[i].value.programmaticStreamSerializationAllowed;
  }
  return 0;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** parameters, void** _) {
  if (config->gridDimX > INT32_MAX || config->gridDimY > 65535 || config->gridDimZ > 65535)
    return CUDA_ERROR_INVALID_VALUE;
  return on_launch ? on_launch(config, f, parameters, is_dependent(config)) : CUDA_SUCCESS;
}

// Nothing to do.
#define SUCCEEDS(function, ...) \
  CUresult function(__VA_ARGS__) { return CUDA_SUCCESS; }
SUCCEEDS(cuModuleUnload, CUmodule module)
SUCCEEDS(cuFuncSetAttribute, CUfunction f, CUfunction_attribute a, int value)
SUCCEEDS(cuFuncSetCacheConfig, CUfunction f, CUfunc_cache c)
SUCCEEDS(cuCtxSetCurrent, CUcontext context)
SUCCEEDS(cuCtxSetLimit, CUlimit limit, size_t value)

// A value, and success.
#define ANSWERS(function, type, answer, ...)      \
  CUresult function(type* value, ##__VA_ARGS__) { \
    *value = (type)(answer);                      \
    return CUDA_SUCCESS;                          \
  }
ANSWERS(cuDeviceGet, CUdevice, index, int index)
ANSWERS(cuDevicePrimaryCtxRetain, CUcontext, 1, CUdevice device)
ANSWERS(cuCtxGetCurrent, CUcontext, 1)
ANSWERS(cuCtxGetDevice, CUdevice, 0)
ANSWERS(cuCtxGetLimit, size_t, 0, CUlimit limit)
ANSWERS(cuDriverGetVersion, int, CUDA_VERSION)
ANSWERS(cuModuleLoadData, CUmodule, ++modules, const void* image)
ANSWERS(cuModuleGetFunction, CUfunction, module, CUmodule module, const char* name)
ANSWERS(cuFuncGetAttribute, int, a == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0,
        CUfunction_attribute a, CUfunction f)

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute a, CUdevice device) {
  switch (a) {
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = 227 * 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9;
      break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *value = 32;
      break;
    default:
      *value = 0;
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* value, CUpointer_attribute a, CUdeviceptr p) {
  *(CUdeviceptr*)value = p;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute* a, void** values, CUdeviceptr p) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  static char said[sizeof failure];
  if (error == CUDA_ERROR_LAUNCH_FAILED) {
    snprintf(said, sizeof said, "%s", *failure ? failure : "unspecified launch failure");
    *failure = 0;
    *text = said;
  } else if (error == CUDA_ERROR_INVALID_HANDLE) {
    *text = "invalid resource handle";
  } else {
    *text = "invalid argument";
  }
  return CUDA_SUCCESS;
}

// A kernel with each fault that test_machine_code.py looks for, and one without any.
#include <cstdint>

__device__ uint4 add(uint4 a, uint4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
__device__ uint32_t sum(uint4 v) { return v.x + v.y + v.z + v.w; }

extern "C" {

__global__ void sound(const uint4* x, uint4* y) {
  y[threadIdx.x] = add(x[threadIdx.x], x[threadIdx.x + 32]);
}

__global__ void one_load_in_flight(const uint4* x, uint4* y) {
  y[threadIdx.x] = x[sum(x[threadIdx.x])];
}

__global__ void narrow_access(const uint4* x, uint4* y, const uint32_t* factors) {
  uint4 v = x[threadIdx.x];
  v.x *= factors[threadIdx.x];
  y[threadIdx.x] = v;
}

__global__ void local_memory(const uint4* x, uint4* y, int rows) {
  uint32_t counts[32] = {};
  for (int i = 0; i < rows; ++i) counts[sum(x[i]) % 32] += i;
  uint4 v = x[threadIdx.x];
  v.x = counts[v.y % 32];
  y[threadIdx.x] = v;
}

__global__ void double_arithmetic(const float4* x, float4* y) {
  float4 v = x[threadIdx.x];
  v.x = static_cast<float>(v.x * 1.1);
  y[threadIdx.x] = v;
}

__global__ void call(const float4* x, float4* y) {
  float4 v = x[threadIdx.x];
  v.x /= v.y;
  y[threadIdx.x] = v;
}

__global__ void flushed_subnormals(const float4* x, float4* y) {
  float4 v = x[threadIdx.x];
  asm("mul.ftz.f32 %0, %0, %1;" : "+f"(v.x) : "f"(v.y));
  y[threadIdx.x] = v;
}

__global__ void many_registers(const uint4* x, uint4* y) {
  uint4 v[40];
#pragma unroll
  for (int i = 0; i < 40; ++i) v[i] = x[32 * i + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 40; ++i) y[33 * i + threadIdx.x] = v[i];
}

}  // extern "C"

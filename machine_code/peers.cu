// What the kernels are compared with: the formulas of PyTorch's eager GELU (and for the sigmoid,
// the one of TransformerEngine), each thread with 8 elements in vectors of 16 bytes and nothing
// else to do: no strides, no ragged end.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

struct Normal {
  static __device__ float value(float x) { return 0.5f * x * (1 + erff(x * 0.70710678f)); }
  static __device__ float derivative(float x) {
    const float cdf = 0.5f * (1 + erff(x * 0.70710678f));
    const float pdf = expf(-0.5f * x * x) * 0.39894228f;
    return cdf + x * pdf;
  }
};

struct NormalTanh {
  static constexpr float beta = 0.79788456f, kappa = 0.044715f;
  static __device__ float value(float x) {
    return 0.5f * x * (1 + tanhf(beta * (x + kappa * x * x * x)));
  }
  static __device__ float derivative(float x) {
    const float t = tanhf(beta * (x + kappa * x * x * x));
    const float slope = beta * (1 + 3 * kappa * x * x);
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * slope;
  }
};

struct Logistic1702 {
  static __device__ float sigmoid(float x) { return 1 / (1 + expf(-1.702f * x)); }
  static __device__ float value(float x) { return x * sigmoid(x); }
  static __device__ float derivative(float x) {
    const float s = sigmoid(x);
    return s + 1.702f * x * s * (1 - s);
  }
};

struct fp32 {
  using Pair = float2;
  static __device__ float2 load(Pair pair) { return pair; }
  static __device__ Pair store(float2 numbers) { return numbers; }
};
struct fp16 {
  using Pair = __half2;
  static __device__ float2 load(Pair pair) { return __half22float2(pair); }
  static __device__ Pair store(float2 numbers) { return __float22half2_rn(numbers); }
};
struct bf16 {
  using Pair = __nv_bfloat162;
  static __device__ float2 load(Pair pair) { return __bfloat1622float2(pair); }
  static __device__ Pair store(float2 numbers) { return __float22bfloat162_rn(numbers); }
};

template <class Dtype>
struct Elements {
  static constexpr int pairs = 4, vectors = pairs * sizeof(typename Dtype::Pair) / sizeof(uint4);
  typename Dtype::Pair in[pairs];

  __device__ void load(const uint4* from, int64_t thread) {
    uint4 words[vectors];
    for (int i = 0; i < vectors; ++i) words[i] = from[thread * vectors + i];
    memcpy(in, words, sizeof in);
  }
  __device__ void store(uint4* to, int64_t thread) const {
    uint4 words[vectors];
    memcpy(words, in, sizeof in);
    for (int i = 0; i < vectors; ++i) to[thread * vectors + i] = words[i];
  }
};

template <class Gate, class Dtype>
__global__ void forward(const uint4* x, uint4* y, int threads) {
  const int thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= threads) return;
  Elements<Dtype> elements;
  elements.load(x, thread);
  for (auto& pair : elements.in) {
    const float2 n = Dtype::load(pair);
    pair = Dtype::store({Gate::value(n.x), Gate::value(n.y)});
  }
  elements.store(y, thread);
}

template <class Gate, class Dtype>
__global__ void backward(const uint4* dy, const uint4* x, uint4* dx, int threads) {
  const int thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= threads) return;
  Elements<Dtype> elements, gradients;
  elements.load(x, thread);
  gradients.load(dy, thread);
  for (int i = 0; i < elements.pairs; ++i) {
    const float2 n = Dtype::load(elements.in[i]), d = Dtype::load(gradients.in[i]);
    gradients.in[i] = Dtype::store({d.x * Gate::derivative(n.x), d.y * Gate::derivative(n.y)});
  }
  gradients.store(dx, thread);
}

#define PEERS(Gate, Dtype)                                                  \
  template __global__ void forward<Gate, Dtype>(const uint4*, uint4*, int); \
  template __global__ void backward<Gate, Dtype>(const uint4*, const uint4*, uint4*, int);
#define PEERS_OF(Gate) PEERS(Gate, fp32) PEERS(Gate, fp16) PEERS(Gate, bf16)
PEERS_OF(Normal)
PEERS_OF(NormalTanh)
PEERS_OF(Logistic1702)

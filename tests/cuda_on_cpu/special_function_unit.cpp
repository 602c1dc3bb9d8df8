// A special function unit with the errors that PTX allows: 2^-22 for ex2.approx.ftz.f32 and 2^-23
// for rcp.approx.ftz.f32, relative to the result.
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "csrc/gates/arithmetic.h"
#include "export.h"

namespace gelu_kernels {
namespace {

enum Error { none, up, down, random };
Error exp2_error = random, reciprocal_error = random;
uint32_t seed = 0;
double scale = 1;  // of the bounds

// In [-1, 1], another one for each argument.
double noise(float x) {
  uint64_t h = (bits(x) | uint64_t{seed} << 32) * 0x9e3779b97f4a7c15;
  h = (h ^ h >> 32) * 0xd6e8feb86659fd93;
  return static_cast<double>(h >> 32) * 0x1p-31 - 1;
}

float flushed(float x) { return std::fabs(x) < FLT_MIN ? std::copysign(0.0f, x) : x; }

// A float within `bound` of y > 0.
float inexact(double y, double bound, Error error, float x) {
  bound *= scale;
  const double least = y * (1 - bound), most = y * (1 + bound);
  float result = static_cast<float>(y);
  if (error == up) result = static_cast<float>(most);
  if (error == down) result = static_cast<float>(least);
  if (error == random) result = static_cast<float>(y * (1 + bound * noise(x)));
  if (result > most) result = std::nextafter(result, 0.0f);
  if (result < least) result = std::nextafter(result, INFINITY);
  return flushed(result);
}

}  // namespace

float approximate_exp2(float x) {
  x = flushed(x);
  return inexact(std::exp2(static_cast<double>(x)), x == std::floor(x) ? 0 : 0x1p-22, exp2_error,
                 x);
}

float approximate_reciprocal(float x) {
  x = flushed(x);
  return std::copysign(inexact(1.0 / std::fabs(x), 0x1p-23, reciprocal_error, x), x);
}

}  // namespace gelu_kernels

CUDA_ON_CPU_EXPORT void cuda_on_cpu_set_errors(int exp2, int reciprocal, uint32_t seed,
                                               double scale) {
  gelu_kernels::exp2_error = static_cast<gelu_kernels::Error>(exp2);
  gelu_kernels::reciprocal_error = static_cast<gelu_kernels::Error>(reciprocal);
  gelu_kernels::seed = seed;
  gelu_kernels::scale = scale;
}

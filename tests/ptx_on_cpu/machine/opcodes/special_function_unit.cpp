// PTX ISA 9.0, 9.7.3: the error of ex2.approx.ftz.f32 is 2^-22 relative to the result, that of
// rcp.approx.ftz.f32 2^-23. They flush subnormal numbers. That of div.full.f32, which does not, is
// two units in the last place.
#include <cfloat>
#include <cmath>

#include "numbers.h"
#include "tables.h"
#include "team.h"

namespace ptx {
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

// A float within `bound` of y >= 0.
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

float approximate_exp2(float x) {
  x = flushed(x);
  return canonical(inexact(std::exp2(static_cast<double>(x)), 0x1p-22, exp2_error, x));
}

float approximate_reciprocal(float x) {
  x = flushed(x);
  // A GPU's own reciprocal has no step that would mend an error here (csrc/gates/arithmetic.h).
  if ((bits(x) & 0x7fffff) == 0x7fffff) return canonical(flushed(1 / x));
  const float magnitude = inexact(1.0 / std::fabs(x), 0x1p-23, reciprocal_error, x);
  return canonical(std::copysign(magnitude, x));
}

float approximate_quotient(float x, float y) {
  const float quotient = x / y;
  if (!std::isnormal(quotient)) return canonical(quotient);
  const double magnitude = std::fabs(static_cast<double>(x) / y);
  const double bound = 2 * std::scalbn(1.0, std::ilogb(magnitude) - 23) / magnitude;
  return std::copysign(inexact(magnitude, bound, reciprocal_error, y), quotient);
}

}  // namespace

void add_special_functions(Table& table) {
  table["ex2.approx.ftz.f32"] = lanes<approximate_exp2>();
  table["rcp.approx.ftz.f32"] = lanes<approximate_reciprocal>();
  table["div.full.f32"] = lanes<approximate_quotient>();
}

}  // namespace ptx

extern "C" __attribute__((visibility("default"))) void ptx_set_errors(int exp2, int reciprocal,
                                                                      uint32_t seed, double scale) {
  ptx::exp2_error = static_cast<ptx::Error>(exp2);
  ptx::reciprocal_error = static_cast<ptx::Error>(reciprocal);
  ptx::seed = seed;
  ptx::scale = scale;
}

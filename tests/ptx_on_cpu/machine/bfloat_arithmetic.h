// Products and sums of bfloats, rounded once.
#pragma once

#include "numbers.h"

namespace ptx {

// x + error, to which x is the nearest T: where it lies between two of them, the odd one.
template <class T>
T rounded_to_odd(T x, double error) {
  if (!(error < 0 || error > 0)) return x;
  const bool is_beyond = x != 0 && (error < 0) == (x > 0);
  return std::bit_cast<T>(static_cast<Bits<T>>((bits(x) - is_beyond) | 1));
}

// The product is exact in double. The sum is rounded to odd, there and to float: both have more
// than the two places beyond a bfloat's that the last rounding needs.
inline bfloat fused_bfloat(bfloat a, bfloat b, bfloat c) {
  const double product = static_cast<double>(a) * static_cast<double>(b), addend = c;
  const double sum = product + addend, part = sum - product;
  const double odd = rounded_to_odd(sum, (product - (sum - part)) + (addend - part));
  const float nearest = static_cast<float>(odd);
  return to_bfloat(rounded_to_odd(nearest, odd - nearest));
}
inline bfloat multiply_bfloat(bfloat a, bfloat b) { return fused_bfloat(a, b, bfloat{0x8000}); }

}  // namespace ptx

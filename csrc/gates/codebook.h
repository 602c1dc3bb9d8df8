// Codes of 8 or 4 bits for the derivative of a gate.
#pragma once

#include "csrc/gates/coefficients/codebook.h"
#include "csrc/gates/factor.h"

namespace gelu_kernels {

// A code stands for (code - zero)/levels, except the code `nan`, which stands for NaN.
struct Codebook {
  Codebook() = default;
  explicit Codebook(int64_t bits)
      : Codebook(bits == 8 ? Codebook(8, codebook_8bit()) : Codebook(4, codebook_4bit())) {}

  int bits = 0;
  float levels = 0, step = 0, zero = 0, nan = 0;

 private:
  template <class Fitted>
  Codebook(int bits, Fitted)
      : bits(bits),
        levels(Fitted::levels),
        step(1 / Fitted::levels),
        zero(Fitted::zero),
        nan(Fitted::nan) {}
};

// The length in bytes of this many codes: 4-bit codes come in pairs, the first in the low half of a
// byte.
template <class Integer>
Integer code_bytes(const Integer& elements, int bits) {
  return bits == 8 ? elements : (elements + 1) / 2;
}

// The number added before a code is truncated to an integer: 1/2 for the nearest code, else the low
// half of a random word as a fraction in [0, 1). More bits would be rounded away in the sum with
// the largest codes, and 0 and 1 would not be exact. The high half decides whether an element is
// dropped, except at one of its 65,536 values.
struct Rounding {
  explicit Rounding(bool dither) : mask(dither ? 0xffff : 0), least(dither ? 0.0f : 0.5f) {}
  GELU_KERNELS_HD float of(uint32_t word) const {
    return fma(static_cast<float>(static_cast<int32_t>(word & mask)), 0x1p-16f, least);
  }
  uint32_t mask;
  float least;
};

// The code in the lowest bits, as many as it has. None is cut off at the ends: the codebook reaches
// a step beyond any derivative. A gate has `derivative_to_encode` for this, in which absolute
// errors count: it takes from the value what it can, and no more instructions than a code is worth.
GELU_KERNELS_HD int32_t encode(float derivative, float rounding, const Codebook& c) {
  const float code = fma(derivative, c.levels, c.zero + rounding);
#ifdef __CUDA_ARCH__
  // Of a GPU's NaN all lower bits are 1, as of the code for it.
  return static_cast<int32_t>(bits(__fadd_rz(code, 0x1p23f)));
#else
  return static_cast<int32_t>(code == code ? code : c.nan);
#endif
}

GELU_KERNELS_HD float step_in(const Codebook& c, float) { return c.step; }
GELU_KERNELS_HD double step_in(const Codebook& c, double) { return 1 / double{c.levels}; }

template <class Real>
GELU_KERNELS_HD Real decode(int32_t code, const Codebook& c) {
  const float number = static_cast<float>(code);
  const Real derivative = Real(number - c.zero) * step_in(c, Real());
  return number == c.nan ? Real(__builtin_nanf("")) : derivative;
}

// What dy is multiplied by: a coded derivative times the factor of dropout.
struct Decoder {
  Codebook codebook;
  Factor dropout_factor;

  template <class Real>
  GELU_KERNELS_HD Real factor(int32_t code) const {
    return decode<Real>(code, codebook) * dropout_factor.as<Real>();
  }
};

}  // namespace gelu_kernels

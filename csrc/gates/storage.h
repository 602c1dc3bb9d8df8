// Conversions between storage formats and the type that a gate is evaluated in. On a CPU it is
// integer code: g++ 12 vectorises it for any instruction set, which it does not do for a cast from
// or to _Float16. Where an instruction set converts float16, csrc/cpu/chunks.h does.
#pragma once

#include "csrc/gates/arithmetic.h"

namespace gelu_kernels {

// Which fp16 values of a gate come out as ties that must round up although even is down.
enum class Ties { kNone, kSubnormal, kAny };

// load(u) is exact. store(x) rounds to nearest, ties to even.
//
// store_value(x) rounds the value of a gate to nearest, ties towards +infinity. Near zero
// gate(x) = x/2 + F'(0) x^2 lies above x/2 by less than float can hold, and where x/2 is a tie that
// direction is the right one for both signs.
template <class Precision>
struct Storage;

template <>
struct Storage<bf16> {
  using type = uint16_t;
  static constexpr float largest = 0x1.fep127f;
  static GELU_KERNELS_HD float load(uint16_t u) {
    return from_bits(static_cast<uint32_t>(u) << 16);
  }
  static GELU_KERNELS_HD uint16_t store(float x) {
#ifdef __CUDA_ARCH__
    uint16_t u;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(u) : "f"(x));
    return u;
#else
    return shift(bits(x), 0x7fff + (bits(x) >> 16 & 1));
#endif
  }
  static GELU_KERNELS_HD uint16_t store_value(float x) {
    return shift(bits(x), 0x8000 - (bits(x) >> 31));
  }
  // Moves the value of a gate off a tie, upwards, so that store() gives what store_value() does,
  // but for the sign of a zero. The only ties are subnormal numbers.
  template <Ties, class Real>
  static GELU_KERNELS_HD Real break_tie(Real y) {
    return y + 0x1p-149f;
  }

 private:
  static GELU_KERNELS_HD uint16_t shift(uint32_t u, uint32_t half) {
    const bool is_nan = (u & 0x7fffffff) > 0x7f800000;
    return static_cast<uint16_t>((is_nan ? u | 0x400000 : u + half) >> 16);
  }
};

template <>
struct Storage<fast_bf16> : Storage<bf16> {};

template <>
struct Storage<fp16> {
  using type = uint16_t;
  static constexpr float largest = 0x1.ffcp15f;
  static GELU_KERNELS_HD float load(uint16_t u) {
#ifdef __CUDA_ARCH__
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(u));
    return x;
#else
    const uint32_t magnitude = (u & 0x7fffu) << 13;
    const uint32_t sign = (u & 0x8000u) << 16;
    // Subnormals: 2^-14 + x, whose bits are at hand, less 2^-14. A multiplication by 2^112 would do
    // for all finite numbers, but takes an assist of some 150 cycles for a subnormal operand.
    const float subnormal = from_bits(magnitude + (113u << 23)) - 0x1p-14f;
    const uint32_t bias = magnitude < (31u << 23) ? 112u << 23 : 224u << 23;
    return from_bits(sign | (magnitude < (1u << 23) ? bits(subnormal) : magnitude + bias));
#endif
  }
  static GELU_KERNELS_HD uint16_t store(float x) {
#ifdef __CUDA_ARCH__
    uint16_t u;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(u) : "f"(x));
    return u;
#else
    const uint32_t u = bits(x) & 0x7fffffff;
    const uint32_t normal = (u - (112u << 23) + 0xfff + (u >> 13 & 1)) >> 13;
    // 1/2 and a subnormal have the same last place, 2^-24.
    const uint32_t subnormal = bits(from_bits(u) + 0.5f) - bits(0.5f);
    return finish(x, u < (113u << 23) ? subnormal : normal);
#endif
  }
  static GELU_KERNELS_HD uint16_t store_value(float x) {
    const uint32_t u = bits(x) & 0x7fffffff;
    const uint32_t normal = (u - (112u << 23) + 0x1000 - (bits(x) >> 31)) >> 13;
    // The factor moves x up by less than two floats: ties go up, and no gate's value is that near.
    const float up = x < 0 ? 1 - 0x1p-23f : 1 + 0x1p-23f;
    const uint32_t subnormal = bits(fma(from_bits(u), up, 0.5f)) - bits(0.5f);
    return finish(x, u < (113u << 23) ? subnormal : normal);
  }
  // As above, where a gate has such ties. Of normal numbers, an odd float stands in for an even
  // one: it is on the same side of any tie, and is none. A gate has no tie among subnormal numbers
  // if its F(-a) is 2^-24 or more below 1/2: then the value for x = 2^-24 is a float above x/2.
  template <Ties kTies, class Real>
  static GELU_KERNELS_HD Real break_tie(Real y) {
    if constexpr (kTies == Ties::kNone) return y;
    const Real up = y + 0x1.8p-48f;
    if constexpr (kTies == Ties::kSubnormal) return up;
    return odd_neighbour(at_most(up, 0x1p17f));  // infinity would become NaN
  }

 private:
  static GELU_KERNELS_HD uint16_t finish(float x, uint32_t rounded) {
    const uint32_t finite = rounded < 0x7c00 ? rounded : 0x7c00;
    const uint32_t magnitude = x == x ? finite : 0x7e00;
    return static_cast<uint16_t>(magnitude | (bits(x) >> 16 & 0x8000));
  }
};

template <class Precision>
struct WideStorage {
  using type = typename Precision::Real;
  static GELU_KERNELS_HD type load(type x) { return x; }
  static GELU_KERNELS_HD type store(type x) { return x; }
  static GELU_KERNELS_HD type store_value(type x) { return x; }
};

template <>
struct Storage<fp32> : WideStorage<fp32> {};
template <>
struct Storage<fp64> : WideStorage<fp64> {};

template <class Precision>
using StorageOf = typename Storage<Precision>::type;

}  // namespace gelu_kernels

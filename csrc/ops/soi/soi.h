// The operators of the SOI map.
#pragma once

#include <ATen/core/Generator.h>

#include "csrc/ops/gate/gate.h"
#include "csrc/random/philox.h"

namespace gelu_kernels {

// y = m (x + bias) with m ~ Bernoulli(F(x + bias)), and the mask of m: bit i % 8 of byte i / 8
// belongs to element i in row-major order. seed is an int64 scalar on the device of x; GlobalIndex
// says which random bits it gives an element.
struct SoiForward : Operator<SoiForward, std::tuple<Tensor, Tensor>(
                                             const Tensor&, const OptionalTensor&, const Tensor&,
                                             std::string_view, int64_t, int64_t, int64_t)> {
  static constexpr const char* schema =
      "soi_forward(Tensor x, Tensor? bias, Tensor seed, str gate, int offset=0, int row_length=0, "
      "int row_stride=0) -> (Tensor y, Tensor mask)";
  template <class Device>
  static Signature compute;
  static Signature differentiate, batch;
};

// dx = dy where the mask is 1, else 0.
struct SoiBackward : Operator<SoiBackward, Tensor(const Tensor&, const Tensor&)> {
  static constexpr const char* schema = "soi_backward(Tensor dy, Tensor mask) -> Tensor dx";
  template <class Device>
  static Signature compute;
  static Signature differentiate, batch;
};

// The same, and dbias, its sum over all but the last dimension.
struct SoiBackwardBias
    : Operator<SoiBackwardBias, std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&)> {
  static constexpr const char* schema =
      "soi_backward_bias(Tensor dy, Tensor mask) -> (Tensor dx, Tensor dbias)";
  template <class Device>
  static Signature compute;
  static Signature differentiate, batch;
};

inline constexpr SoiForward soi_forward;
inline constexpr SoiBackward soi_backward;
inline constexpr SoiBackwardBias soi_backward_bias;

// The public operators.
C10_EXPORT Tensor soi_map(const Tensor& x, std::string_view gate,
                          const std::optional<at::Generator>& generator);
C10_EXPORT Tensor fused_bias_soi_map(const Tensor& x, const Tensor& bias, std::string_view gate,
                                     const std::optional<at::Generator>& generator);

// For tests: of the 2^32 random words, how many have -|x| in the tail of F, in int64, for a float32
// tensor on the CPU. They are the least.
C10_EXPORT Tensor soi_thresholds(const Tensor& x, std::string_view gate);

// The length of a mask.
inline c10::SymInt mask_bytes(const Tensor& x) { return (x.sym_numel() + 7) / 8; }

C10_EXPORT Gate check_soi_forward(const Tensor& x, const OptionalTensor& bias, const Tensor& seed,
                                  std::string_view gate, const GlobalIndex& index);
C10_EXPORT void check_soi_backward(const char* op, const Tensor& dy, const Tensor& mask,
                                   bool has_bias);

}  // namespace gelu_kernels

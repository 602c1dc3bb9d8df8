// The operators of the SOI map, and their kernels over a device.
#pragma once

#include <ATen/ops/empty.h>

#include "csrc/ops/cdf/cdf.h"
#include "csrc/ops/gate/gate.h"
#include "csrc/ops/random.h"
#include "csrc/ops/soi/kernels.h"

namespace gelu_kernels {

Gate check_soi_forward(const char* op, const Tensor& x, const OptionalTensor& bias,
                       const Tensor& seed, std::string_view gate, const GlobalIndex& index);
Gate check_soi_cdf_forward(const char* op, const Tensor& x, const Tensor& loc, const Tensor& scale,
                           const Tensor& seed, std::string_view gate, const GlobalIndex& index);
void check_soi_backward(const char* op, const Tensor& dy, const Tensor& mask, bool has_bias);

// Computes y and the mask from checked arguments: with a bias, with a loc and a scale, or neither.
template <class Device>
std::tuple<Tensor, Tensor> draw(const char* op, Gate gate, const Tensor& x,
                                const OptionalTensor& bias, at::ArrayRef<Tensor> parameters,
                                const Tensor& seed, const GlobalIndex& index) {
  Tensor y = Device::empty_like(x);
  Tensor mask = at::empty_symint({mask_bytes(x)}, x.options().dtype(at::kByte));
  if constexpr (Device::has_data) {
    const Tensor own_bias = bias ? bias->contiguous() : Tensor();
    bool by_rows = bias.has_value();
    Parameters own;
    std::array<Matrix, 2> layouts = {};
    for (size_t k = 0; k < parameters.size(); ++k) {
      const bool is_number = parameters[k].dim() == 0;
      const int64_t columns = is_number ? SoiKernels<Device>::copies_of_number : x.size(-1);
      own[k] = parameters[k].expand({columns}).contiguous();
      layouts[k] = {data_of(own[k]), is_number ? 0 : static_cast<int64_t>(x.element_size()), 0};
      by_rows |= !is_number;
    }
    const auto run = [&](int64_t rows, int64_t columns, Matrix y_rows, Matrix x_rows) {
      SoiKernels<Device>::forward(
          op, x, gate,
          {y_rows, x_rows, bias ? data_of(own_bias) : nullptr, layouts[0], layouts[1],
           reinterpret_cast<uint8_t*>(data_of(mask)), Device::seed_of(seed), index, rows, columns});
    };
    in_row_major_order(by_rows, run, y, x);
  }
  return {std::move(y), std::move(mask)};
}

// y = m (x + bias) with m ~ Bernoulli(F(x + bias)), and the mask of m: bit i % 8 of byte i / 8
// belongs to element i in row-major order. seed is an int64 scalar on the CPU or on the device of
// x; GlobalIndex says which random bits it gives an element.
struct SoiForward : Operator<SoiForward, std::tuple<Tensor, Tensor>(
                                             const Tensor&, const OptionalTensor&, const Tensor&,
                                             std::string_view, int64_t, int64_t, int64_t)> {
  static constexpr const char* schema =
      "soi_forward(Tensor x, Tensor? bias, Tensor seed, str gate, int offset=0, int row_length=0, "
      "int row_stride=0) -> (Tensor y, Tensor mask)";
  static Signature differentiate, batch;

  template <class Device>
  static std::tuple<Tensor, Tensor> compute(const Tensor& x, const OptionalTensor& bias,
                                            const Tensor& seed, std::string_view gate,
                                            int64_t offset, int64_t row_length,
                                            int64_t row_stride) {
    const GlobalIndex index{offset, row_length, row_stride};
    const Gate id = check_soi_forward(name(), x, bias, seed, gate, index);
    return draw<Device>(name(), id, x, bias, {}, seed, index);
  }
};

// y = m x with m ~ Bernoulli(F((x - loc)/scale)), likewise; loc and scale are each one number, or a
// vector along the last dimension.
struct SoiCdfForward
    : Operator<SoiCdfForward, std::tuple<Tensor, Tensor>(
                                  const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                  std::string_view, int64_t, int64_t, int64_t)> {
  static constexpr const char* schema =
      "soi_cdf_forward(Tensor x, Tensor loc, Tensor scale, Tensor seed, str gate, int offset=0, "
      "int row_length=0, int row_stride=0) -> (Tensor y, Tensor mask)";
  static Signature differentiate, batch;

  template <class Device>
  static std::tuple<Tensor, Tensor> compute(const Tensor& x, const Tensor& loc, const Tensor& scale,
                                            const Tensor& seed, std::string_view gate,
                                            int64_t offset, int64_t row_length,
                                            int64_t row_stride) {
    const GlobalIndex index{offset, row_length, row_stride};
    const Gate id = check_soi_cdf_forward(name(), x, loc, scale, seed, gate, index);
    return draw<Device>(name(), id, x, std::nullopt, {loc, scale}, seed, index);
  }
};

// dx = dy where the mask is 1, else 0.
struct SoiBackward : Operator<SoiBackward, Tensor(const Tensor&, const Tensor&)> {
  static constexpr const char* schema = "soi_backward(Tensor dy, Tensor mask) -> Tensor dx";
  static Signature differentiate, batch;

  template <class Device>
  static Tensor compute(const Tensor& dy, const Tensor& mask) {
    check_soi_backward(name(), dy, mask, /*has_bias=*/false);
    Tensor dx = Device::empty_like(dy);
    if constexpr (Device::has_data) {
      const Tensor contiguous_mask = mask.contiguous();
      const auto run = [&](int64_t rows, int64_t columns, Matrix dx_rows, Matrix dy_rows) {
        SoiKernels<Device>::backward(
            name(), dy,
            {dx_rows, dy_rows, contiguous_mask.const_data_ptr<uint8_t>(), rows, columns});
      };
      in_row_major_order(/*by_rows=*/false, run, dx, dy);
    }
    return dx;
  }
};

// The same, and dbias, its sum over all but the last dimension.
struct SoiBackwardBias
    : Operator<SoiBackwardBias, std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&)> {
  static constexpr const char* schema =
      "soi_backward_bias(Tensor dy, Tensor mask) -> (Tensor dx, Tensor dbias)";
  static Signature differentiate, batch;

  template <class Device>
  static std::tuple<Tensor, Tensor> compute(const Tensor& dy, const Tensor& mask) {
    check_soi_backward(name(), dy, mask, /*has_bias=*/true);
    Tensor dx = Device::empty_like(dy);
    Tensor dbias = at::empty_symint({dy.sym_size(-1)}, dy.options());
    if constexpr (Device::has_data) {
      const Tensor contiguous_mask = mask.contiguous();
      ColumnSums sums = {};
      sums.mask = contiguous_mask.const_data_ptr<uint8_t>();
      sum_columns<Device>(name(), SoiKernels<Device>::column_sums(dy), sums, dbias, dx, dy);
    }
    return {std::move(dx), std::move(dbias)};
  }
};

inline constexpr SoiForward soi_forward;
inline constexpr SoiCdfForward soi_cdf_forward;
inline constexpr SoiBackward soi_backward;
inline constexpr SoiBackwardBias soi_backward_bias;

// y = m x; the generator draws the seed of m. Where one of loc and scale is given, the other is
// that of F itself.
struct SoiMap : PublicOperator<SoiMap> {
  static constexpr const char* schema =
      "soi_map(Tensor x, *, str gate=\"normal\", Tensor? loc=None, Tensor? scale=None, "
      "Generator? generator=None) -> Tensor";
  static constexpr bool is_random = true;
  C10_EXPORT static Tensor compose(const Tensor& x, std::string_view gate,
                                   const OptionalTensor& loc, const OptionalTensor& scale,
                                   const std::optional<at::Generator>& generator);
};

// y = m (x + bias), likewise
struct FusedBiasSoiMap : PublicOperator<FusedBiasSoiMap> {
  static constexpr const char* schema =
      "fused_bias_soi_map(Tensor x, Tensor bias, *, str gate=\"normal\", "
      "Generator? generator=None) -> Tensor";
  static constexpr bool is_random = true;
  C10_EXPORT static Tensor compose(const Tensor& x, const Tensor& bias, std::string_view gate,
                                   const std::optional<at::Generator>& generator);
};

// For tests: how many of the 2^32 random words, the least ones, have -|x| in the tail of F; int64,
// for a float32 tensor on the CPU.
C10_EXPORT Tensor soi_thresholds(const Tensor& x, std::string_view gate);

}  // namespace gelu_kernels

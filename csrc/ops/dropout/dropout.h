// The operators of a gate, or a gated linear unit, with dropout, and their kernels over a device:
//
//   y = m g(x + bias) k  or  y = m g(x) up k,  m ~ Bernoulli(1 - p), k = 1/(1 - p)
//
// Where m is 0, so are y and the gradients, whatever the other factors are. seed and GlobalIndex
// say which random bits an element has, as for the SOI map; the mask of m has its form too.
#pragma once

#include <ATen/ops/empty.h>

#include "csrc/ops/dropout/kernels.h"
#include "csrc/ops/glu/glu.h"
#include "csrc/ops/random.h"

namespace gelu_kernels {

// Writes y and the mask, for arguments that are checked.
template <class Device>
Tensor draw_dropout(const char* op, Gate gate, double p, const Tensor& y, const Tensor& x,
                    const OptionalTensor& bias, const OptionalTensor& up, const Tensor& seed,
                    const GlobalIndex& index) {
  const Tensor mask = at::empty_symint({mask_bytes(y)}, y.options().dtype(at::kByte));
  if constexpr (Device::has_data) {
    const std::optional<Dropout> dropout = dropout_of(p);
    if (!dropout) {
      y.zero_();
      mask.zero_();
      return mask;
    }
    const Tensor own_bias = bias ? bias->contiguous() : Tensor();
    const auto run = [&](int64_t rows, int64_t columns, Matrix y_rows, Matrix x_rows,
                         Matrix up_rows = {}) {
      DropoutKernels<Device>::forward(op, x, gate,
                                      {y_rows, x_rows, up_rows, bias ? data_of(own_bias) : nullptr,
                                       reinterpret_cast<uint8_t*>(data_of(mask)),
                                       Device::seed_of(seed), index, *dropout, rows, columns});
    };
    if (up) {
      in_row_major_order(/*by_rows=*/false, run, y, x, *up);
    } else {
      in_row_major_order(/*by_rows=*/bias.has_value(), run, y, x);
    }
  }
  return mask;
}

// y = m g(x + bias) k, and the mask of m.
struct GateDropoutForward
    : Operator<GateDropoutForward,
               std::tuple<Tensor, Tensor>(const Tensor&, const OptionalTensor&, const Tensor&,
                                          std::string_view, double, int64_t, int64_t, int64_t)> {
  static constexpr const char* schema =
      "gate_dropout_forward(Tensor x, Tensor? bias, Tensor seed, str gate, float p, int offset=0, "
      "int row_length=0, int row_stride=0) -> (Tensor y, Tensor mask)";
  static Signature differentiate, batch;

  template <class Device>
  static std::tuple<Tensor, Tensor> compute(const Tensor& x, const OptionalTensor& bias,
                                            const Tensor& seed, std::string_view gate, double p,
                                            int64_t offset, int64_t row_length,
                                            int64_t row_stride) {
    const Gate id = check_gate(name(), x, bias, gate);
    const GlobalIndex index{offset, row_length, row_stride};
    check_draw(name(), x, seed, index);
    check_p(name(), p);
    Tensor y = Device::empty_like(x);
    Tensor mask = draw_dropout<Device>(name(), id, p, y, x, bias, /*up=*/std::nullopt, seed, index);
    return {std::move(y), std::move(mask)};
  }
};

// Checks all arguments of its gradient.
Gate check_gate_dropout_backward(const char* op, const Tensor& dy, const Tensor& x,
                                 const OptionalTensor& bias, const Tensor& mask,
                                 std::string_view gate, double p);

// dx = m dy k g'(x + bias)
struct GateDropoutBackward
    : Operator<GateDropoutBackward, Tensor(const Tensor&, const Tensor&, const OptionalTensor&,
                                           const Tensor&, std::string_view, double)> {
  static constexpr const char* schema =
      "gate_dropout_backward(Tensor dy, Tensor x, Tensor? bias, Tensor mask, str gate, float p)"
      " -> Tensor dx";
  static Signature differentiate, batch;

  template <class Device>
  static Tensor compute(const Tensor& dy, const Tensor& x, const OptionalTensor& bias,
                        const Tensor& mask, std::string_view gate, double p) {
    const Gate id = check_gate_dropout_backward(name(), dy, x, bias, mask, gate, p);
    Tensor dx = Device::empty_like(x);
    if constexpr (Device::has_data) {
      const Tensor own_mask = mask.contiguous(), own_bias = bias ? bias->contiguous() : Tensor();
      const auto run = [&](int64_t rows, int64_t columns, Matrix dx_rows, Matrix dy_rows,
                           Matrix x_rows) {
        DropoutKernels<Device>::backward(name(), x, id,
                                         {dx_rows,
                                          {},
                                          dy_rows,
                                          x_rows,
                                          {},
                                          bias ? data_of(own_bias) : nullptr,
                                          own_mask.const_data_ptr<uint8_t>(),
                                          factor_of(p),
                                          rows,
                                          columns});
      };
      in_row_major_order(/*by_rows=*/bias.has_value(), run, dx, dy, x);
    }
    return dx;
  }
};

// The same, and dbias, its sum over all but the last dimension.
struct GateDropoutBackwardBias
    : Operator<GateDropoutBackwardBias,
               std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                          const Tensor&, std::string_view, double)> {
  static constexpr const char* schema =
      "gate_dropout_backward_bias(Tensor dy, Tensor x, Tensor bias, Tensor mask, str gate, float p)"
      " -> (Tensor dx, Tensor dbias)";
  static Signature differentiate, batch;

  template <class Device>
  static std::tuple<Tensor, Tensor> compute(const Tensor& dy, const Tensor& x, const Tensor& bias,
                                            const Tensor& mask, std::string_view gate, double p) {
    const Gate id = check_gate_dropout_backward(name(), dy, x, bias, mask, gate, p);
    Tensor dx = Device::empty_like(x);
    Tensor dbias = Device::empty_contiguous(bias);
    if constexpr (Device::has_data) {
      const Tensor own_mask = mask.contiguous(), own_bias = bias.contiguous();
      ColumnSums sums = {};
      sums.parameters[0] = data_of(own_bias);
      sums.mask = own_mask.const_data_ptr<uint8_t>();
      sums.factor = factor_of(p);
      sum_columns<Device>(name(), DropoutKernels<Device>::column_sums(x, id), sums, dbias, dx, dy,
                          x);
    }
    return {std::move(dx), std::move(dbias)};
  }
};

// y = m g(x) up k, and the mask of m.
struct GluDropoutForward
    : Operator<GluDropoutForward,
               std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                          std::string_view, double, int64_t, int64_t, int64_t)> {
  static constexpr const char* schema =
      "glu_dropout_forward(Tensor x, Tensor up, Tensor seed, str gate, float p, int offset=0, "
      "int row_length=0, int row_stride=0) -> (Tensor y, Tensor mask)";
  static Signature differentiate, batch;

  template <class Device>
  static std::tuple<Tensor, Tensor> compute(const Tensor& x, const Tensor& up, const Tensor& seed,
                                            std::string_view gate, double p, int64_t offset,
                                            int64_t row_length, int64_t row_stride) {
    const Gate id = check_glu(name(), x, up, {std::nullopt, gate, std::nullopt, 0});
    const GlobalIndex index{offset, row_length, row_stride};
    check_draw(name(), x, seed, index);
    check_p(name(), p);
    Tensor y = Device::empty_like(x);
    Tensor mask = draw_dropout<Device>(name(), id, p, y, x, /*bias=*/std::nullopt, up, seed, index);
    return {std::move(y), std::move(mask)};
  }
};

// Checks all arguments of its gradient.
Gate check_glu_dropout_backward(const char* op, const Tensor& dy, const Tensor& x, const Tensor& up,
                                const Tensor& mask, std::string_view gate, double p);

// Writes dx = m dy k up g'(x) and dup = m dy k g(x).
template <class Device>
void write_glu_dropout_gradients(const char* op, Gate gate, double p, const Tensor& dx,
                                 const Tensor& dup, const Tensor& dy, const Tensor& x,
                                 const Tensor& up, const Tensor& mask) {
  if constexpr (Device::has_data) {
    const Tensor own_mask = mask.contiguous();
    const auto run = [&](int64_t rows, int64_t columns, Matrix dx_rows, Matrix dup_rows,
                         Matrix dy_rows, Matrix x_rows, Matrix up_rows) {
      DropoutKernels<Device>::backward(
          op, x, gate,
          {dx_rows, dup_rows, dy_rows, x_rows, up_rows, /*bias=*/nullptr,
           own_mask.const_data_ptr<uint8_t>(), factor_of(p), rows, columns});
    };
    in_row_major_order<2>(/*by_rows=*/false, run, dx, dup, dy, x, up);
  }
}

struct GluDropoutBackward
    : Operator<GluDropoutBackward,
               std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                          const Tensor&, std::string_view, double)> {
  static constexpr const char* schema =
      "glu_dropout_backward(Tensor dy, Tensor x, Tensor up, Tensor mask, str gate, float p)"
      " -> (Tensor dx, Tensor dup)";
  static Signature differentiate, batch;

  template <class Device>
  static std::tuple<Tensor, Tensor> compute(const Tensor& dy, const Tensor& x, const Tensor& up,
                                            const Tensor& mask, std::string_view gate, double p) {
    const Gate id = check_glu_dropout_backward(name(), dy, x, up, mask, gate, p);
    Tensor dx = Device::empty_like(x), dup = Device::empty_like(up);
    write_glu_dropout_gradients<Device>(name(), id, p, dx, dup, dy, x, up, mask);
    return {std::move(dx), std::move(dup)};
  }
};

// The same for the halves of x; dx has its shape.
struct GluDropoutHalvesForward
    : Operator<GluDropoutHalvesForward,
               std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, std::string_view, double,
                                          int64_t, int64_t, int64_t)> {
  static constexpr const char* schema =
      "glu_dropout_halves_forward(Tensor x, Tensor seed, str gate, float p, int offset=0, "
      "int row_length=0, int row_stride=0) -> (Tensor y, Tensor mask)";
  static Signature differentiate, batch;

  template <class Device>
  static std::tuple<Tensor, Tensor> compute(const Tensor& x, const Tensor& seed,
                                            std::string_view gate, double p, int64_t offset,
                                            int64_t row_length, int64_t row_stride) {
    const Gate id = check_glu_halves(name(), x, {std::nullopt, gate, std::nullopt, 0});
    const GlobalIndex index{offset, row_length, row_stride};
    check_draw(name(), x, seed, index);
    check_p(name(), p);
    const Halves in(x);
    Tensor y = Device::empty_contiguous(in.x);
    Tensor mask =
        draw_dropout<Device>(name(), id, p, y, in.x, /*bias=*/std::nullopt, in.up, seed, index);
    return {std::move(y), std::move(mask)};
  }
};

Gate check_glu_dropout_halves_backward(const char* op, const Tensor& dy, const Tensor& x,
                                       const Tensor& mask, std::string_view gate, double p);

struct GluDropoutHalvesBackward
    : Operator<GluDropoutHalvesBackward,
               Tensor(const Tensor&, const Tensor&, const Tensor&, std::string_view, double)> {
  static constexpr const char* schema =
      "glu_dropout_halves_backward(Tensor dy, Tensor x, Tensor mask, str gate, float p)"
      " -> Tensor dx";
  static Signature differentiate, batch;

  template <class Device>
  static Tensor compute(const Tensor& dy, const Tensor& x, const Tensor& mask,
                        std::string_view gate, double p) {
    const Gate id = check_glu_dropout_halves_backward(name(), dy, x, mask, gate, p);
    const Halves in(x);
    Tensor dx = Device::empty_like(x);
    const Halves out(dx);
    write_glu_dropout_gradients<Device>(name(), id, p, out.x, out.up, dy, in.x, in.up, mask);
    return dx;
  }
};

inline constexpr GateDropoutForward gate_dropout_forward;
inline constexpr GateDropoutBackward gate_dropout_backward;
inline constexpr GateDropoutBackwardBias gate_dropout_backward_bias;
inline constexpr GluDropoutForward glu_dropout_forward;
inline constexpr GluDropoutBackward glu_dropout_backward;
inline constexpr GluDropoutHalvesForward glu_dropout_halves_forward;
inline constexpr GluDropoutHalvesBackward glu_dropout_halves_backward;

// y = m g(x + bias) k, the gate by the name that PyTorch has for it; the generator draws the seed
// of m. Without training or dropout, y = g(x + bias).
struct FusedBiasGeluDropout : PublicOperator<FusedBiasGeluDropout> {
  static constexpr const char* schema =
      "fused_bias_gelu_dropout(Tensor x, Tensor bias, float p=0.5, *, bool training=True, "
      "str approximate=\"none\", str? save=None, bool dither=False, "
      "Generator? generator=None) -> Tensor";
  static constexpr bool is_random = true;
  C10_EXPORT static Tensor compose(const Tensor& x, const Tensor& bias, double p, bool training,
                                   std::string_view approximate,
                                   std::optional<std::string_view> save, bool dither,
                                   const std::optional<at::Generator>& generator);
};

// The same of any gate.
struct FusedGateDropout : PublicOperator<FusedGateDropout> {
  static constexpr const char* schema =
      "fused_gate_dropout(Tensor x, Tensor? bias=None, float p=0.5, *, str gate, "
      "bool training=True, str? save=None, bool dither=False, Generator? generator=None) -> "
      "Tensor";
  static constexpr bool is_random = true;
  C10_EXPORT static Tensor compose(const Tensor& x, const OptionalTensor& bias, double p,
                                   std::string_view gate, bool training,
                                   std::optional<std::string_view> save, bool dither,
                                   const std::optional<at::Generator>& generator);
};

// y = m g(x) up k, likewise; without up, of the halves of x.
struct FusedGluDropout : PublicOperator<FusedGluDropout> {
  static constexpr const char* schema =
      "fused_glu_dropout(Tensor x, Tensor? up=None, float p=0.5, *, str gate=\"normal\", "
      "bool training=True, Generator? generator=None) -> Tensor";
  static constexpr bool is_random = true;
  C10_EXPORT static Tensor compose(const Tensor& x, const OptionalTensor& up, double p,
                                   std::string_view gate, bool training,
                                   const std::optional<at::Generator>& generator);
};

}  // namespace gelu_kernels

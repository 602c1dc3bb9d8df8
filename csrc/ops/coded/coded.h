// The operators of a gate whose derivative is kept in 8 or 4 bits for backward, and their kernels
// over a device.
#pragma once

#include "csrc/gates/coded.h"
#include "csrc/ops/coded/kernels.h"
#include "csrc/ops/gate/gate.h"
#include "csrc/ops/random.h"

namespace gelu_kernels {

Gate check_coded_forward(const char* op, const Tensor& x, const OptionalTensor& bias,
                         const OptionalTensor& seed, std::string_view gate, int64_t bits, double p,
                         bool dither, const GlobalIndex& index);
void check_coded_backward(const char* op, const Tensor& dy, const Tensor& code, int64_t bits,
                          double p, bool has_bias);

// y = g(x + bias), after dropout with probability p, and the code of g'(x + bias):
// csrc/gates/coded.h defines both. The code is the nearest, or with `dither` one of the two nearest
// at random. Where anything is random, seed is an int64 scalar on the CPU or on the device of x;
// GlobalIndex says which random bits it gives an element.
struct CodedForward : Operator<CodedForward, std::tuple<Tensor, Tensor>(
                                                 const Tensor&, const OptionalTensor&,
                                                 const OptionalTensor&, std::string_view, int64_t,
                                                 double, bool, int64_t, int64_t, int64_t)> {
  static constexpr const char* schema =
      "coded_forward(Tensor x, Tensor? bias, Tensor? seed, str gate, int bits, float p=0., "
      "bool dither=False, int offset=0, int row_length=0, int row_stride=0) "
      "-> (Tensor y, Tensor code)";
  static Signature differentiate, batch;

  template <class Device>
  static std::tuple<Tensor, Tensor> compute(const Tensor& x, const OptionalTensor& bias,
                                            const OptionalTensor& seed, std::string_view gate,
                                            int64_t bits, double p, bool dither, int64_t offset,
                                            int64_t row_length, int64_t row_stride) {
    const GlobalIndex index{offset, row_length, row_stride};
    const Gate id = check_coded_forward(name(), x, bias, seed, gate, bits, p, dither, index);
    Tensor y = Device::empty_like(x);
    Tensor code = at::empty_symint({code_bytes(x.sym_numel(), bits)}, x.options().dtype(at::kByte));
    if constexpr (Device::has_data) {
      const Codebook codebook(bits);
      const std::optional<Dropout> dropout = dropout_of(p);
      if (!dropout) {
        const int64_t zero = static_cast<int64_t>(codebook.zero);
        y.zero_();
        code.fill_(bits == 8 ? zero : zero << 4 | zero);
        return {std::move(y), std::move(code)};
      }
      const Tensor own_bias = bias ? bias->contiguous() : Tensor();
      const auto run = [&](int64_t rows, int64_t columns, Matrix y_rows, Matrix x_rows) {
        CodedKernels<Device>::forward(
            name(), x, id,
            {y_rows, x_rows, bias ? data_of(own_bias) : nullptr,
             reinterpret_cast<uint8_t*>(data_of(code)), seed.has_value(),
             seed ? Device::seed_of(*seed) : Seed{}, codebook, Rounding(dither), p > 0,
             dropout->threshold, dropout->factor, index, rows, columns});
      };
      in_row_major_order(/*by_rows=*/bias.has_value(), run, y, x);
    }
    return {std::move(y), std::move(code)};
  }
};

// dx = dy times the coded derivative, and times 1/(1 - p).
struct CodedBackward
    : Operator<CodedBackward, Tensor(const Tensor&, const Tensor&, int64_t, double)> {
  static constexpr const char* schema =
      "coded_backward(Tensor dy, Tensor code, int bits, float p=0.) -> Tensor dx";
  static Signature differentiate, batch;

  template <class Device>
  static Tensor compute(const Tensor& dy, const Tensor& code, int64_t bits, double p) {
    check_coded_backward(name(), dy, code, bits, p, /*has_bias=*/false);
    Tensor dx = Device::empty_like(dy);
    if constexpr (Device::has_data) {
      const Tensor contiguous_code = code.contiguous();
      const auto run = [&](int64_t rows, int64_t columns, Matrix dx_rows, Matrix dy_rows) {
        CodedKernels<Device>::backward(name(), dy,
                                       {dx_rows,
                                        dy_rows,
                                        contiguous_code.const_data_ptr<uint8_t>(),
                                        {Codebook(bits), factor_of(p)},
                                        rows,
                                        columns});
      };
      in_row_major_order(/*by_rows=*/false, run, dx, dy);
    }
    return dx;
  }
};

// The same, and dbias, its sum over all but the last dimension.
struct CodedBackwardBias
    : Operator<CodedBackwardBias,
               std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, int64_t, double)> {
  static constexpr const char* schema =
      "coded_backward_bias(Tensor dy, Tensor code, int bits, float p=0.)"
      " -> (Tensor dx, Tensor dbias)";
  static Signature differentiate, batch;

  template <class Device>
  static std::tuple<Tensor, Tensor> compute(const Tensor& dy, const Tensor& code, int64_t bits,
                                            double p) {
    check_coded_backward(name(), dy, code, bits, p, /*has_bias=*/true);
    Tensor dx = Device::empty_like(dy);
    Tensor dbias = at::empty_symint({dy.sym_size(-1)}, dy.options());
    if constexpr (Device::has_data) {
      const Tensor contiguous_code = code.contiguous();
      ColumnSums sums = {};
      sums.code = contiguous_code.const_data_ptr<uint8_t>();
      sums.codebook = Codebook(bits);
      sums.factor = factor_of(p);
      sum_columns<Device>(name(), CodedKernels<Device>::column_sums(dy), sums, dbias, dx, dy);
    }
    return {std::move(dx), std::move(dbias)};
  }
};

inline constexpr CodedForward coded_forward;
inline constexpr CodedBackward coded_backward;
inline constexpr CodedBackwardBias coded_backward_bias;

// Of a public operator: save is None, "8bit" or "4bit", and dither has something to round.
void check_save(const char* op, std::optional<std::string_view> save, bool dither);

// g(x + bias), with dropout, for a public operator whose `save` is checked and not None. Where no
// gradient is wanted there is no code.
Tensor apply_coded_gate(const char* op, const Tensor& x, OptionalTensor bias, std::string_view gate,
                        std::string_view save, const OptionalTensor& seed, double p, bool dither);

// The seed that soi_map would draw for x, from the default generator. An operator, as torch.compile
// would draw another in its place.
struct DrawSeed : PublicOperator<DrawSeed> {
  static constexpr const char* schema = "draw_seed(Tensor x) -> Tensor";
  static constexpr bool is_random = true;
  C10_EXPORT static Tensor compose(const Tensor& x);
};

}  // namespace gelu_kernels

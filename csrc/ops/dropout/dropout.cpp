// The public operators of dropout, composed of core operators, and the core operators' checks.
#include "csrc/ops/dropout/dropout.h"

#include "csrc/ops/coded/coded.h"
#include "csrc/ops/jagged.h"

namespace gelu_kernels {

Gate check_gate_dropout_backward(const char* op, const Tensor& dy, const Tensor& x,
                                 const OptionalTensor& bias, const Tensor& mask,
                                 std::string_view gate, double p) {
  const Gate id = check_gate(op, x, bias, gate, {{"dy", dy}});
  check_mask(op, mask, {"dy", dy});
  check_p(op, p);
  return id;
}

Gate check_glu_dropout_backward(const char* op, const Tensor& dy, const Tensor& x, const Tensor& up,
                                const Tensor& mask, std::string_view gate, double p) {
  const Gate id = check_glu(op, x, up, {std::nullopt, gate, std::nullopt, 0}, dy);
  check_mask(op, mask, {"dy", dy});
  check_p(op, p);
  return id;
}

Gate check_glu_dropout_halves_backward(const char* op, const Tensor& dy, const Tensor& x,
                                       const Tensor& mask, std::string_view gate, double p) {
  const Gate id = check_glu_halves(op, x, {std::nullopt, gate, std::nullopt, 0}, dy);
  check_mask(op, mask, {"dy", dy});
  check_p(op, p);
  return id;
}

namespace {

// The coded derivative that backward keeps instead of x, if save is given.
struct Saved {
  std::optional<std::string_view> save;
  bool dither;
};

// A jagged tensor draws what the tensor of its values would draw. Arguments are checked before a
// seed is drawn.
Tensor apply_dropout(const char* op, const Tensor& x, OptionalTensor bias, double p,
                     std::string_view gate, const Saved& saved,
                     const std::optional<at::Generator>& generator) {
  check_input(op, x);
  if (x.layout() == at::kJagged) {
    return map_values(op, x, [&](const Tensor& values) {
      return apply_dropout(op, values, bias, p, gate, saved, generator);
    });
  }
  bias = bias_for(op, std::move(bias), x);
  gate = gate_name(op, gate);
  OptionalTensor seed;
  if (p > 0 || saved.dither) seed = draw_seed(op, x, generator);
  if (saved.save) return apply_coded_gate(op, x, bias, gate, *saved.save, seed, p, saved.dither);
  if (p == 0) return gate_forward(x, bias, gate);
  return std::get<0>(gate_dropout_forward(x, bias, *seed, gate, p, /*offset=*/0, /*row_length=*/0,
                                          /*row_stride=*/0));
}

}  // namespace

Tensor FusedBiasGeluDropout::compose(const Tensor& x, const Tensor& bias, double p, bool training,
                                     std::string_view approximate,
                                     std::optional<std::string_view> save, bool dither,
                                     const std::optional<at::Generator>& generator) {
  check_p(name(), p);
  check_save(name(), save, dither);
  return apply_dropout(name(), x, bias, training ? p : 0, gate_for(name(), approximate),
                       {save, dither}, generator);
}

Tensor FusedGateDropout::compose(const Tensor& x, const OptionalTensor& bias, double p,
                                 std::string_view gate, bool training,
                                 std::optional<std::string_view> save, bool dither,
                                 const std::optional<at::Generator>& generator) {
  check_p(name(), p);
  check_save(name(), save, dither);
  return apply_dropout(name(), x, bias, training ? p : 0, gate, {save, dither}, generator);
}

Tensor FusedGluDropout::compose(const Tensor& x, const OptionalTensor& up, double p,
                                std::string_view gate, bool training,
                                const std::optional<at::Generator>& generator) {
  check_p(name(), p);
  gate = gate_name(name(), gate);
  if (!training || p == 0) {
    return FusedGlu::compose(x, up, gate, /*limit=*/std::nullopt, /*up_offset=*/0,
                             /*weight=*/std::nullopt);
  }
  check_input(name(), x);
  if (x.layout() == at::kJagged) {
    return map_values(name(), x, [&](const Tensor& values) {
      const auto own_up = up ? OptionalTensor(jagged_values(name(), {"up", *up})) : up;
      return compose(values, own_up, p, gate, training, generator);
    });
  }
  const OptionalTensor up_like_x = up ? cast_under_autocast(*up, x) : up;
  const GluOptions options{std::nullopt, gate, std::nullopt, 0};
  // Before a seed is drawn.
  if (up) check_glu(name(), x, *up_like_x, options);
  if (!up) check_glu_halves(name(), x, options);
  const Tensor seed = draw_seed(name(), x, generator);
  return std::get<0>(up ? glu_dropout_forward(x, *up_like_x, seed, gate, p, /*offset=*/0,
                                              /*row_length=*/0, /*row_stride=*/0)
                        : glu_dropout_halves_forward(x, seed, gate, p, /*offset=*/0,
                                                     /*row_length=*/0, /*row_stride=*/0));
}

}  // namespace gelu_kernels

// torch.vmap of the passes that draw; autograd.cpp has the rules of their gradients.
#include "csrc/ops/dropout/dropout.h"
#include "csrc/ops/one_by_one.h"

namespace gelu_kernels {

std::tuple<Tensor, Tensor> GateDropoutForward::batch(const Tensor& x, const OptionalTensor& bias,
                                                     const Tensor& seed, std::string_view gate,
                                                     double p, int64_t offset, int64_t row_length,
                                                     int64_t row_stride) {
  Batched batch;
  batch.see(x);
  batch.see(seed);
  if (bias) batch.see(*bias);
  return one_by_one(batch, [&](const auto& example) {
    const OptionalTensor own_bias = bias ? OptionalTensor(example(*bias)) : std::nullopt;
    return gate_dropout_forward(example(x), own_bias, example(seed), gate, p, offset, row_length,
                                row_stride);
  });
}

std::tuple<Tensor, Tensor> GluDropoutForward::batch(const Tensor& x, const Tensor& up,
                                                    const Tensor& seed, std::string_view gate,
                                                    double p, int64_t offset, int64_t row_length,
                                                    int64_t row_stride) {
  Batched batch;
  for (const Tensor& t : {x, up, seed}) batch.see(t);
  return one_by_one(batch, [&](const auto& example) {
    return glu_dropout_forward(example(x), example(up), example(seed), gate, p, offset, row_length,
                               row_stride);
  });
}

std::tuple<Tensor, Tensor> GluDropoutHalvesForward::batch(const Tensor& x, const Tensor& seed,
                                                          std::string_view gate, double p,
                                                          int64_t offset, int64_t row_length,
                                                          int64_t row_stride) {
  Batched batch;
  for (const Tensor& t : {x, seed}) batch.see(t);
  return one_by_one(batch, [&](const auto& example) {
    return glu_dropout_halves_forward(example(x), example(seed), gate, p, offset, row_length,
                                      row_stride);
  });
}

}  // namespace gelu_kernels

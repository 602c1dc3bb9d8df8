// The kernels of the gates' operators, over a device.
#pragma once

#include "csrc/ops/device/column_sums.h"
#include "csrc/ops/gate/gate.h"

namespace gelu_kernels {

template <class Device>
Tensor GateForward::compute(const Tensor& x, const OptionalTensor& bias, std::string_view gate) {
  const char* op = "gate_forward";
  const Gate id = check_gate(op, x, bias, gate);
  Tensor y = Device::empty_like(x);
  Device::map(op, &Device::Passes::forward, id, bias, y, x);
  return y;
}

template <class Device>
Tensor GateBackward::compute(const Tensor& dy, const Tensor& x, const OptionalTensor& bias,
                             std::string_view gate) {
  const char* op = "gate_backward";
  const Gate id = check_gate(op, x, bias, gate, {{"dy", dy}});
  Tensor dx = Device::empty_like(x);
  Device::map(op, &Device::Passes::backward, id, bias, dx, dy, x);
  return dx;
}

template <class Device>
std::tuple<Tensor, Tensor> GateBackwardBias::compute(const Tensor& dy, const Tensor& x,
                                                     const Tensor& bias, std::string_view gate) {
  const char* op = "gate_backward_bias";
  const Gate id = check_gate(op, x, bias, gate, {{"dy", dy}});
  Tensor dx = Device::empty_like(x);
  Tensor dbias = Device::empty_contiguous(bias);
  if constexpr (Device::has_data) {
    const Tensor contiguous_bias = bias.contiguous();
    sum_columns<Device>(op, Device::column_sums(id, x), data_of(contiguous_bias), /*mask=*/nullptr,
                        dbias, dx, dy, x);
  }
  return {std::move(dx), std::move(dbias)};
}

template <class Device>
Tensor GateDoubleBackward::compute(const Tensor& ddx, const Tensor& dy, const Tensor& x,
                                   const OptionalTensor& bias, std::string_view gate) {
  const char* op = "gate_double_backward";
  const Gate id = check_gate(op, x, bias, gate, {{"ddx", ddx}, {"dy", dy}});
  Tensor dx = Device::empty_like(x);
  Device::map(op, &Device::Passes::double_backward, id, bias, dx, ddx, dy, x);
  return dx;
}

}  // namespace gelu_kernels

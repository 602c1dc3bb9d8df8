// The kernels of the gated linear unit, over a device. A half of a tensor is read and written where
// it lies.
#pragma once

#include "csrc/ops/glu/glu.h"

namespace gelu_kernels {

template <class Device>
Tensor GluForward::compute(const Tensor& x, const Tensor& up, std::string_view gate) {
  const char* op = "glu_forward";
  const Gate id = check_glu(op, x, up, gate);
  Tensor y = Device::empty_like(x);
  Device::map(op, &Device::Passes::glu_forward, id, std::nullopt, y, x, up);
  return y;
}

template <class Device>
std::tuple<Tensor, Tensor> GluBackward::compute(const Tensor& dy, const Tensor& x, const Tensor& up,
                                                std::string_view gate) {
  const char* op = "glu_backward";
  const Gate id = check_glu(op, x, up, gate, dy);
  Tensor dx = Device::empty_like(x);
  Tensor dup = Device::empty_like(up);
  Device::template map<2>(op, &Device::Passes::glu_backward, id, std::nullopt, dx, dup, dy, x, up);
  return {std::move(dx), std::move(dup)};
}

template <class Device>
Tensor GluHalvesForward::compute(const Tensor& x, std::string_view gate) {
  const char* op = "glu_halves_forward";
  const Gate id = check_glu_halves(op, x, gate);
  const Halves in(x);
  Tensor y = Device::empty_contiguous(in.x);
  Device::map(op, &Device::Passes::glu_forward, id, std::nullopt, y, in.x, in.up);
  return y;
}

template <class Device>
Tensor GluHalvesBackward::compute(const Tensor& dy, const Tensor& x, std::string_view gate) {
  const char* op = "glu_halves_backward";
  const Gate id = check_glu_halves(op, x, gate, dy);
  const Halves in(x);
  Tensor dx = Device::empty_like(x);
  const Halves out(dx);
  Device::template map<2>(op, &Device::Passes::glu_backward, id, std::nullopt, out.x, out.up, dy,
                          in.x, in.up);
  return dx;
}

}  // namespace gelu_kernels

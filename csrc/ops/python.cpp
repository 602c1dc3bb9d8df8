// gelu_kernels._C: the public operators by the quickest binding, the list of gates, the facts of
// the build, the checks of core operators for kernels in Python, and thresholds of the SOI map for
// tests.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/ops/build_info.h"
#include "csrc/ops/gate/gate.h"
#include "csrc/ops/glu/glu.h"
#include "csrc/ops/soi/soi.h"

namespace py = pybind11;

namespace {

using gelu_kernels::OptionalTensor;

// Their names for `gate=` and for `approximate=`, which may be None.
std::vector<std::pair<std::string_view, std::optional<std::string_view>>> gates() {
  std::vector<std::pair<std::string_view, std::optional<std::string_view>>> result;
  for (const auto& [gate, name, approximate] : gelu_kernels::gates()) {
    result.emplace_back(name, approximate);
  }
  return result;
}

at::Tensor geglu(const at::Tensor& x, const OptionalTensor& up, std::string_view approximate) {
  return gelu_kernels::fused_glu(x, up, gelu_kernels::gate_for("geglu", approximate));
}

void check_gate(const std::string& op, const at::Tensor& x, const OptionalTensor& bias,
                std::string_view gate, const OptionalTensor& dy, const OptionalTensor& ddx) {
  std::vector<gelu_kernels::Argument> like_x;
  if (ddx) like_x.push_back({"ddx", *ddx});
  if (dy) like_x.push_back({"dy", *dy});
  gelu_kernels::check_gate(op.c_str(), x, bias, gate, like_x);
}

void check_glu(const std::string& op, const at::Tensor& x, const at::Tensor& up,
               std::string_view gate, const OptionalTensor& dy) {
  gelu_kernels::check_glu(op.c_str(), x, up, gate, dy);
}

void check_glu_halves(const std::string& op, const at::Tensor& x, std::string_view gate,
                      const OptionalTensor& dy) {
  gelu_kernels::check_glu_halves(op.c_str(), x, gate, dy);
}

void check_soi_forward(const at::Tensor& x, const OptionalTensor& bias, const at::Tensor& seed,
                       std::string_view gate, int64_t offset, int64_t row_length,
                       int64_t row_stride) {
  gelu_kernels::check_soi_forward(x, bias, seed, gate, {offset, row_length, row_stride});
}

void check_soi_backward(const std::string& op, const at::Tensor& dy, const at::Tensor& mask,
                        bool has_bias) {
  gelu_kernels::check_soi_backward(op.c_str(), dy, mask, has_bias);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using Release = py::call_guard<py::gil_scoped_release>;
  m.def("gelu", &gelu_kernels::fused_gelu, py::arg("input"), py::arg("approximate") = "none",
        Release());
  m.def("bias_gelu", &gelu_kernels::fused_bias_gelu, py::arg("input"), py::arg("bias"),
        py::arg("approximate") = "none", Release());
  m.def("geglu", &geglu, py::arg("input"), py::arg("up") = py::none(),
        py::arg("approximate") = "none", Release());
  m.def("soi_map", &gelu_kernels::soi_map, py::arg("input"), py::arg("gate") = "normal",
        py::arg("generator") = py::none(), Release());
  m.def("bias_soi_map", &gelu_kernels::fused_bias_soi_map, py::arg("input"), py::arg("bias"),
        py::arg("gate") = "normal", py::arg("generator") = py::none(), Release());
  m.def("gates", &gates);
  m.def("check_gate", &check_gate, py::arg("op"), py::arg("x"), py::arg("bias"), py::arg("gate"),
        py::arg("dy") = py::none(), py::arg("ddx") = py::none());
  m.def("soi_thresholds", &gelu_kernels::soi_thresholds, py::arg("x"), py::arg("gate"));
  m.def("check_glu", &check_glu, py::arg("op"), py::arg("x"), py::arg("up"), py::arg("gate"),
        py::arg("dy") = py::none());
  m.def("check_glu_halves", &check_glu_halves, py::arg("op"), py::arg("x"), py::arg("gate"),
        py::arg("dy") = py::none());
  m.def("check_soi_forward", &check_soi_forward);
  m.def("check_soi_backward", &check_soi_backward);
  m.def("build_info", [] { return py::dict(py::cast(gelu_kernels::build_info())); });
}

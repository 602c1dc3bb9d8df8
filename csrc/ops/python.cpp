// gelu_kernels._C: the public operators by the quickest binding, what was built, and, for kernels
// in Python, the checks of a core operator's arguments.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/ops/gate_ops.h"

namespace py = pybind11;

namespace {

using OptionalTensor = std::optional<at::Tensor>;

void check_arguments(const std::string& op, const at::Tensor& x, const OptionalTensor& bias,
                     std::string_view gate, const OptionalTensor& dy, const OptionalTensor& ddx) {
  std::vector<gelu_kernels::LikeX> like_x;
  if (ddx) like_x.push_back({"ddx", *ddx});
  if (dy) like_x.push_back({"dy", *dy});
  gelu_kernels::check_arguments(op.c_str(), x, bias, gate, like_x);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using Release = py::call_guard<py::gil_scoped_release>;
  m.def("gelu", &gelu_kernels::fused_gelu, py::arg("input"), py::arg("approximate") = "none",
        Release());
  m.def("bias_gelu", &gelu_kernels::fused_bias_gelu, py::arg("input"), py::arg("bias"),
        py::arg("approximate") = "none", Release());
  m.def("check_arguments", &check_arguments, py::arg("op"), py::arg("x"), py::arg("bias"),
        py::arg("gate"), py::arg("dy") = py::none(), py::arg("ddx") = py::none());
  m.def("build_info", [] { return py::dict(py::cast(gelu_kernels::build_info())); });
}

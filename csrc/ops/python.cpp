// gelu_kernels._C: the public operators by the quickest binding, and what was built.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/ops/gate_ops.h"

namespace py = pybind11;

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using Release = py::call_guard<py::gil_scoped_release>;
  m.def("gelu", &gelu_kernels::fused_gelu, py::arg("input"), py::arg("approximate") = "none",
        Release());
  m.def("bias_gelu", &gelu_kernels::fused_bias_gelu, py::arg("input"), py::arg("bias"),
        py::arg("approximate") = "none", Release());
  m.def("build_info", [] { return py::dict(py::cast(gelu_kernels::build_info())); });
}

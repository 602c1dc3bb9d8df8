// gelu_kernels._C: the public operators by the quickest binding, the list of gates, the facts of
// the build, and thresholds of the SOI map for tests.
#include <pybind11/stl.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/ops/build_info.h"
#include "csrc/ops/operators.h"

namespace py = pybind11;

namespace {

// Their names for `gate=` and for `approximate=`, which may be None.
std::vector<std::pair<std::string_view, std::optional<std::string_view>>> gates() {
  std::vector<std::pair<std::string_view, std::optional<std::string_view>>> result;
  for (const auto& [gate, name, approximate] : gelu_kernels::gates()) {
    result.emplace_back(name, approximate);
  }
  return result;
}

// With the names of the schema's arguments, all of which are to be given.
template <class Operator, class Result, class... Arguments>
void bind(py::module_& m, Result (*compose)(Arguments...)) {
  const auto schema = torch::jit::parseSchema(Operator::schema);
  [&]<size_t... k>(std::index_sequence<k...>) {
    m.def(Operator::name(), compose, py::arg(schema.arguments()[k].name().c_str())...,
          py::call_guard<py::gil_scoped_release>());
  }(std::index_sequence_for<Arguments...>());
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  gelu_kernels::PublicOperators::for_each(
      [&]<class Operator>(Operator) { bind<Operator>(m, Operator::compose); });
  m.def("gates", &gates);
  m.def("soi_thresholds", &gelu_kernels::soi_thresholds, py::arg("x"), py::arg("gate"));
  m.def("build_info", [] { return py::dict(py::cast(gelu_kernels::build_info())); });
}

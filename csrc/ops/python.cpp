// gelu_kernels._C: the public operators by the quickest binding, the list of gates, the facts of
// the build, and for tests thresholds of the SOI map and seeds of a GPU's generator.
#include <pybind11/stl.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/csrc/utils/pybind.h>

#include <array>

#include "csrc/ops/build_info.h"
#include "csrc/ops/operators.h"

namespace py = pybind11;

namespace {

using Name = std::optional<std::string_view>;

// Their names for `gate=` and for `approximate=`, and the alias for `gate=`; both may be None.
std::vector<std::tuple<std::string_view, Name, Name>> gates() {
  std::vector<std::tuple<std::string_view, Name, Name>> result;
  for (const auto& [gate, name, approximate, alias] : gelu_kernels::gates()) {
    result.emplace_back(name, approximate, alias);
  }
  return result;
}

// What words an error as the caller of one of our Python functions would.
py::object words_for(const char* name) {
  return py::module_::import("gelu_kernels.functional.arguments").attr(name);
}

// Of an argument of the wrong type; pybind11 would show the C++ signature.
[[noreturn]] void refuse(const char* op, const c10::Argument& argument, py::handle given) {
  const auto type = argument.real_type();
  const auto optional = type->cast<c10::OptionalType>();
  std::string expected = optional
                             ? c10::str(optional->getElementType()->annotation_str(), " or None")
                             : type->annotation_str();
  if (expected == "ScalarType") expected = "torch.dtype";
  words_for("refuse")(op, argument.name(), expected, given);
  throw py::error_already_set();
}

// An operator's own errors.
void translate(std::exception_ptr thrown) {
  const auto raise = [](PyObject* type, const c10::Error& error) {
    const py::str message = words_for("reworded")(error.what_without_backtrace());
    PyErr_SetObject(type, message.ptr());
  };
  try {
    std::rethrow_exception(thrown);
  } catch (const c10::TypeError& error) {
    raise(PyExc_TypeError, error);
  } catch (const c10::ValueError& error) {
    raise(PyExc_ValueError, error);
  } catch (const c10::NotImplementedError& error) {
    raise(PyExc_NotImplementedError, error);
  }
}

// An operator as a function of Python objects. Its arguments have the names in the operator's
// schema, and all are required.
template <class Operator, auto function>
class Binding;

template <class Operator, class Result, class... Arguments, Result (*function)(Arguments...)>
class Binding<Operator, function> {
 public:
  static void define(py::module_& m) { define(m, std::index_sequence_for<Arguments...>()); }

 private:
  template <class Argument>
  using Given = py::handle;

  static const c10::Argument& argument(size_t k) {
    static const auto schema = torch::jit::parseSchema(Operator::schema);
    return schema.arguments()[k];
  }

  template <class Type>
  static Type converted(py::handle given, size_t k) {
    py::detail::make_caster<Type> caster;
    if (!caster.load(given, /*convert=*/true)) refuse(Operator::name(), argument(k), given);
    return py::detail::cast_op<Type>(std::move(caster));
  }

  static Result call(Given<Arguments>... given) {
    return call_with({given...}, std::index_sequence_for<Arguments...>());
  }

  template <size_t... k>
  static Result call_with(const std::array<py::handle, sizeof...(Arguments)>& given,
                          std::index_sequence<k...>) {
    std::tuple<std::decay_t<Arguments>...> arguments{
        converted<std::decay_t<Arguments>>(given[k], k)...};
    py::gil_scoped_release release;
    return std::apply(function, std::move(arguments));
  }

  template <size_t... k>
  static void define(py::module_& m, std::index_sequence<k...>) {
    m.def(Operator::name(), call, py::arg(argument(k).name().c_str())...);
  }
};

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m, py::mod_gil_not_used()) {
  py::register_local_exception_translator(&translate);
  gelu_kernels::PublicOperators::for_each(
      [&]<class Operator>(Operator) { Binding<Operator, Operator::compose>::define(m); });
  // The core operators that are functions for users too.
  gelu_kernels::Registry<
      gelu_kernels::QuantizedGateBackward, gelu_kernels::QuantizedGateBackwardBias,
      gelu_kernels::QuantizedGluBackward,
      gelu_kernels::QuantizedGluHalvesBackward>::for_each([&]<class Operator>(Operator) {
    Binding<Operator, Operator::call>::define(m);
  });
  m.def("gates", &gates);
  m.def("soi_thresholds", &gelu_kernels::soi_thresholds, py::arg("x"), py::arg("gate"));
  m.def("seed_of_state", &gelu_kernels::seed_of_state, py::arg("generator_seed"),
        py::arg("offset"));
  m.def("build_info", [] { return py::dict(py::cast(gelu_kernels::build_info())); });
}

// gelu_kernels._C: a quick binding of the public operators, the list of gates, facts about the
// build, and for tests the SOI map's thresholds and the seeds of a GPU's generator. All arguments
// are required, and positional in the order of the operator's schema.
#include "csrc/python/objects.h"
// objects.h includes Python.h, which comes first.
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include "csrc/ops/build_info.h"
#include "csrc/ops/operators.h"

namespace gelu_kernels::python {
namespace {

// Calls a function of gelu_kernels/functional/arguments.py, which words errors for the caller of
// one of our Python functions. Returns null and Python's error if it raises one.
template <class... Arguments>
PyObject* in_words(const char* function, const char* format, Arguments... arguments) {
  PyObject* module = PyImport_ImportModule("gelu_kernels.functional.arguments");
  if (!module) return nullptr;
  PyObject* result = PyObject_CallMethod(module, function, format, arguments...);
  Py_DECREF(module);
  return result;
}

// Of an argument of the wrong type.
void refuse(const char* op, const c10::Argument& argument, PyObject* given) {
  const auto type = argument.real_type();
  const auto optional = type->cast<c10::OptionalType>();
  std::string expected = optional
                             ? c10::str(optional->getElementType()->annotation_str(), " or None")
                             : type->annotation_str();
  if (expected == "ScalarType") expected = "torch.dtype";
  Py_XDECREF(in_words("refuse", "sssO", op, argument.name().c_str(), expected.c_str(), given));
}

// Sets Python's error: rewords the operators' own errors, and leaves others to torch.
void translate(const std::exception_ptr& thrown) {
  const auto raise = [](PyObject* type, const c10::Error& error) {
    PyObject* message = in_words("reworded", "s", error.what_without_backtrace());
    if (message) PyErr_SetObject(type, message);
    Py_XDECREF(message);
  };
  try {
    std::rethrow_exception(thrown);
  } catch (const c10::TypeError& error) {
    raise(PyExc_TypeError, error);
  } catch (const c10::ValueError& error) {
    raise(PyExc_ValueError, error);
  } catch (const c10::NotImplementedError& error) {
    raise(PyExc_NotImplementedError, error);
  } catch (...) {
    torch::translate_exception_to_python(thrown);
  }
}

// Releases the GIL.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// A C++ function as a Python function. Described has its schema and its name.
template <class Described, auto function>
struct Binding;

template <class Described, class Result, class... Arguments, Result (*function)(Arguments...)>
struct Binding<Described, function> {
  static PyMethodDef method() {
    const auto pointer = reinterpret_cast<void (*)()>(&call);
    return {Described::name(), reinterpret_cast<PyCFunction>(pointer), METH_FASTCALL, nullptr};
  }

 private:
  static PyObject* call(PyObject*, PyObject* const* given, Py_ssize_t count) {
    if (count != sizeof...(Arguments)) {
      return PyErr_Format(PyExc_TypeError, "%s takes %d arguments, got %zd", Described::name(),
                          static_cast<int>(sizeof...(Arguments)), count);
    }
    try {
      return load_and_call(given, std::index_sequence_for<Arguments...>());
    } catch (...) {
      translate(std::current_exception());
      return nullptr;
    }
  }

  template <size_t... k>
  static PyObject* load_and_call(PyObject* const* given, std::index_sequence<k...>) {
    std::tuple<std::decay_t<Arguments>...> arguments;
    if (!(is_loaded(k, given[k], std::get<k>(arguments)) && ...)) return nullptr;
    return object_of([&] {
      WithoutGil without_gil;
      return std::apply(function, std::move(arguments));
    }());
  }

  template <class Value>
  static bool is_loaded(size_t k, PyObject* given, Value& value) {
    if (load(given, value)) return true;
    static const auto schema = torch::jit::parseSchema(Described::schema);
    refuse(Described::name(), schema.arguments()[k], given);
    return false;
  }
};

// Functions other than operators.
struct Gates : Schema<Gates> {
  static constexpr const char* schema = "gates() -> Any";
  using Name = std::optional<std::string_view>;
  // Their names for `gate=` and for `approximate=`, and the alias for `gate=`; both may be None.
  static std::vector<std::tuple<std::string_view, Name, Name>> call() {
    std::vector<std::tuple<std::string_view, Name, Name>> result;
    for (const auto& [gate, name, approximate, alias] : gelu_kernels::gates()) {
      result.emplace_back(name, approximate, alias);
    }
    return result;
  }
};
struct BuildInfo : Schema<BuildInfo> {
  static constexpr const char* schema = "build_info() -> Any";
};
struct SoiThresholds : Schema<SoiThresholds> {
  static constexpr const char* schema = "soi_thresholds(Tensor x, str gate) -> Tensor";
};
struct SeedOfState : Schema<SeedOfState> {
  static constexpr const char* schema = "seed_of_state(int generator_seed, int offset) -> int";
};

std::vector<PyMethodDef> methods() {
  std::vector<PyMethodDef> result{
      Binding<Gates, Gates::call>::method(),
      Binding<BuildInfo, build_info>::method(),
      Binding<SoiThresholds, soi_thresholds>::method(),
      Binding<SeedOfState, seed_of_state>::method(),
  };
  PublicOperators::for_each([&]<class Operator>(Operator) {
    result.push_back(Binding<Operator, Operator::compose>::method());
  });
  // The core operators that are functions for users too.
  Registry<QuantizedGateBackward, QuantizedGateBackwardBias, QuantizedGluBackward,
           QuantizedGluBackwardWeight, QuantizedGluHalvesBackward,
           QuantizedGluHalvesBackwardWeight>::for_each([&]<class Operator>(Operator) {
    result.push_back(Binding<Operator, Operator::call>::method());
  });
  result.push_back({});
  return result;
}

}  // namespace
}  // namespace gelu_kernels::python

PyMODINIT_FUNC PyInit__C() {
  static std::vector<PyMethodDef> methods = gelu_kernels::python::methods();
  static PyModuleDef definition{
      PyModuleDef_HEAD_INIT, "_C", nullptr, -1, methods.data(), nullptr, nullptr, nullptr, nullptr};
  PyObject* module = PyModule_Create(&definition);
#ifdef Py_GIL_DISABLED
  if (module) PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
  return module;
}

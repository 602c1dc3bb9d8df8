// Converts Python objects to C++ values and back with Python's limited API (PEP 384), so one build
// of the binding supports every Python from 3.10 on. torch's headers for Python need the full API:
// this file repeats their declarations, and tests/release/test_binding.py compares them.
#pragma once

#include <Python.h>
// Python.h comes first.
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

C10_IMPORT extern PyObject* THPVariableClass;
C10_IMPORT extern PyObject* ParameterClass;
C10_IMPORT extern PyObject* THPGeneratorClass;
C10_IMPORT extern PyTypeObject THPDtypeType;
C10_IMPORT PyObject* THPVariable_Wrap(at::TensorBase&& tensor);
namespace torch {
C10_IMPORT void translate_exception_to_python(const std::exception_ptr& thrown);
}

namespace gelu_kernels::python {

// How torch's objects begin: THPVariable, THPGenerator and THPDtype.
template <class Value>
struct Holder {
  PyObject head;
  Value value;
};

template <class Value>
const Value& held(PyObject* object) {
  return reinterpret_cast<Holder<Value>*>(object)->value;
}

inline bool is_instance(PyObject* object, PyObject* type) {
  const int is = PyObject_IsInstance(object, type);
  if (is < 0) PyErr_Clear();
  return is > 0;
}

// load() returns false if the object has another type and does not convert to it.

inline bool load(PyObject* object, at::Tensor& value) {
  // Quicker than PyObject_IsInstance.
  const auto type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  if (type != THPVariableClass && type != ParameterClass && !is_instance(object, THPVariableClass))
    return false;
  value = held<at::Tensor>(object);
  return true;
}

inline bool load(PyObject* object, at::Generator& value) {
  if (!is_instance(object, THPGeneratorClass)) return false;
  value = held<at::Generator>(object);
  return true;
}

inline bool load(PyObject* object, at::ScalarType& value) {
  if (Py_TYPE(object) != &THPDtypeType) return false;
  value = held<at::ScalarType>(object);
  return true;
}

// Valid while the object exists.
inline bool load(PyObject* object, std::string_view& value) {
  Py_ssize_t length = 0;
  const char* text = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &length) : nullptr;
  if (!text) PyErr_Clear();
  value = {text, static_cast<size_t>(length)};
  return text != nullptr;
}

inline bool load(PyObject* object, bool& value) {
  // Takes real numbers, NumPy's too. A list also has a truth value.
  const bool is_number =
      PyType_GetSlot(Py_TYPE(object), Py_nb_bool) != nullptr && !PyComplex_Check(object);
  const int truth = is_number && object != Py_None ? PyObject_IsTrue(object) : -1;
  if (truth < 0) PyErr_Clear();
  value = truth > 0;
  return truth >= 0;
}

inline bool load(PyObject* object, double& value) {
  value = PyFloat_AsDouble(object);
  const bool failed = value == -1 && PyErr_Occurred();
  if (failed) PyErr_Clear();
  return !failed;
}

inline bool load(PyObject* object, uint64_t& value) {
  value = PyLong_AsUnsignedLongLong(object);  // a TypeError unless it is an int
  const bool failed = PyErr_Occurred();
  if (failed) PyErr_Clear();
  return !failed;
}

template <class Value>
bool load(PyObject* object, std::optional<Value>& value) {
  return object == Py_None || load(object, value.emplace());
}

// object_of() returns a new reference, or null and Python's error.

inline PyObject* object_of(at::Tensor value) { return THPVariable_Wrap(std::move(value)); }
inline PyObject* object_of(int64_t value) { return PyLong_FromLongLong(value); }
inline PyObject* object_of(std::string_view value) {
  return PyUnicode_FromStringAndSize(value.data(), static_cast<Py_ssize_t>(value.size()));
}

template <class Value>
PyObject* object_of(std::optional<Value> value) {
  if (value) return object_of(*std::move(value));
  Py_INCREF(Py_None);
  return Py_None;
}

template <class... Values>
PyObject* object_of(std::tuple<Values...> values) {
  PyObject* tuple = PyTuple_New(sizeof...(Values));
  Py_ssize_t place = 0;
  const auto add = [&](PyObject* item) { PyTuple_SetItem(tuple, place++, item); };
  std::apply([&](Values&... each) { (add(object_of(std::move(each))), ...); }, values);
  return tuple;
}

template <class Value>
PyObject* object_of(std::vector<Value> values) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(values.size()));
  Py_ssize_t place = 0;
  for (Value& value : values) PyList_SetItem(list, place++, object_of(std::move(value)));
  return list;
}

inline PyObject* object_of(const std::vector<std::pair<std::string, std::string>>& items) {
  PyObject* dict = PyDict_New();
  for (const auto& [key, text] : items) {
    PyObject* value = object_of(text);
    PyDict_SetItemString(dict, key.c_str(), value);
    Py_DECREF(value);
  }
  return dict;
}

}  // namespace gelu_kernels::python

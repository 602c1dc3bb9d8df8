// An operator as the dispatcher knows it, with the signature of its C++ function.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace gelu_kernels {

template <class Signature>
auto find_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace gelu_kernels

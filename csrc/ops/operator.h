// A core operator: a struct with its schema, its kernel over a device, its derivative and its
// batching rule. An object of it is a C++ function that goes through the dispatcher.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "csrc/ops/vmap.h"

namespace gelu_kernels {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

inline std::string name_in(std::string_view schema) {
  return std::string(schema.substr(0, schema.find('(')));
}

// Derived has
//   static constexpr const char* schema;
//   template <class Device> static Signature compute;
//   static Signature differentiate;  // the kernel of Autograd
// and, where it is not the rule of a pointwise operator, a batch of its own.
template <class Derived, class Signature>
struct Operator;

template <class Derived, class Result, class... Arguments>
struct Operator<Derived, Result(Arguments...)> {
  using Signature = Result(Arguments...);

  static constexpr bool is_pointwise = false;  // what torch.Tag.pointwise promises

  Result operator()(Arguments... arguments) const {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow(("gelu_kernels::" + name()).c_str(), "")
                               .template typed<Signature>();
    return op.call(arguments...);
  }

  static std::string name() { return name_in(Derived::schema); }

  // Recorded by nobody: for the kernel of Autograd.
  static Result below_autograd(Arguments... arguments) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Derived()(arguments...);
  }

  // The kernel of vmap: the operator runs on the whole batch at once.
  static Result batch(Arguments... arguments) {
    PointwiseBatch batch;
    (batch.add(arguments), ...);
    batch.fold_bias();
    c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
    batch.move_to_front();
    // Braces evaluate in order.
    const std::tuple<std::decay_t<Arguments>...> whole{batch.next(arguments)...};
    return batch.batched(std::apply(Derived(), whole));
  }
};

// Registers operators for a dispatch key.
template <class... Operators>
struct Registry {
  static void define(torch::Library& library) {
    const std::vector<at::Tag> of_any{at::Tag::pt2_compliant_tag};
    const std::vector<at::Tag> of_pointwise{at::Tag::pt2_compliant_tag, at::Tag::pointwise};
    (library.def(Operators::schema, Operators::is_pointwise ? of_pointwise : of_any), ...);
  }
  template <class Device>
  static void compute(torch::Library& library) {
    (library.impl(Operators::name().c_str(), Operators::template compute<Device>), ...);
  }
  static void differentiate(torch::Library& library) {
    (library.impl(Operators::name().c_str(), Operators::differentiate), ...);
  }
  static void batch(torch::Library& library) {
    (library.impl(Operators::name().c_str(), Operators::batch), ...);
  }
};

}  // namespace gelu_kernels

// Operators as structs. A core operator has its schema, its kernel over a device, its derivative
// and its batching rule; an object of it is a C++ function that goes through the dispatcher. A
// public operator has its schema and is composed of core operators.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "csrc/ops/vmap.h"

namespace gelu_kernels {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Derived has
//   static constexpr const char* schema;
template <class Derived>
struct Schema {
  static constexpr bool is_pointwise = false, is_random = false;  // promises to torch, as tags
  using Batch = PointwiseBatch;  // how vmap makes a batch of the arguments

  static const char* name() {
    static const std::string name(Derived::schema, std::strcspn(Derived::schema, "("));
    return name.c_str();
  }
  static std::vector<at::Tag> tags() {
    std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
    if (Derived::is_pointwise) tags.push_back(at::Tag::pointwise);
    if (Derived::is_random) tags.push_back(at::Tag::nondeterministic_seeded);
    return tags;
  }
};

// Derived has
//   static Tensor compose(...);  // of core operators
template <class Derived>
struct PublicOperator : Schema<Derived> {};

// Derived has
//   template <class Device> static Signature compute;
//   static Signature differentiate;  // the kernel of Autograd
// and, where it is not the rule of a pointwise operator, a batch of its own.
template <class Derived, class Signature>
struct Operator;

template <class Derived, class Result, class... Arguments>
struct Operator<Derived, Result(Arguments...)> : Schema<Derived> {
  using Signature = Result(Arguments...);

  Result operator()(Arguments... arguments) const {
    static const auto op =
        c10::Dispatcher::singleton()
            .findSchemaOrThrow(c10::str("gelu_kernels::", Derived::name()).c_str(), "")
            .template typed<Signature>();
    return op.call(arguments...);
  }

  static Result call(Arguments... arguments) { return Derived()(arguments...); }

  // Calls the operator below autograd, for the kernel of Autograd.
  static Result below_autograd(Arguments... arguments) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Derived()(arguments...);
  }

  // The kernel of vmap: the operator runs on the whole batch at once.
  static Result batch(Arguments... arguments) {
    TORCH_CHECK_NOT_IMPLEMENTED((!std::is_same_v<typename Derived::Batch, NoBatch>),
                                "gelu_kernels::", Derived::name(),
                                ": vmap cannot batch it; call it on the whole batch, whose leading "
                                "dimensions are rows");
    typename Derived::Batch batch;
    (batch.add(arguments), ...);
    batch.fold_bias();
    c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
    batch.move_to_front();
    // Braces evaluate in order.
    const std::tuple<std::decay_t<Arguments>...> whole{batch.next(arguments)...};
    return batch.batched(std::apply(Derived(), whole));
  }
};

// A list of operators, to register for a dispatch key.
template <class... Operators>
struct Registry {
  template <class Visit>
  static void for_each(const Visit& visit) {
    (visit(Operators()), ...);
  }
  static void define(torch::Library& library) {
    for_each([&]<class Operator>(Operator) {
      const std::vector<at::Tag> tags = Operator::tags();
      library.def(Operator::schema, tags);
    });
  }
  static void compose(torch::Library& library) {
    (library.impl(Operators::name(), Operators::compose), ...);
  }
  template <class Device>
  static void compute(torch::Library& library) {
    (library.impl(Operators::name(), Operators::template compute<Device>), ...);
  }
  static void differentiate(torch::Library& library) {
    (library.impl(Operators::name(), Operators::differentiate), ...);
  }
  static void batch(torch::Library& library) {
    (library.impl(Operators::name(), Operators::batch), ...);
  }
};

}  // namespace gelu_kernels

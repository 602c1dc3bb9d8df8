// Threads of a block that execute an instruction together, and their registers.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "program.h"

namespace ptx {

struct Block;

// Memory for vectors, from the operator new that takes an alignment, goes back to its counterpart.
constexpr std::align_val_t kVectorAlignment{64};
struct FreeVectors {
  void operator()(char* data) const { ::operator delete[](data, kVectorAlignment); }
};

struct Team {
  Block* block;
  int first_thread, threads;
  std::unique_ptr<char[], FreeVectors> registers;

  // The lanes that execute the present instruction.
  alignas(64) bool active[kLanes];
  bool all_active;

  template <class T>
  T* column(int64_t place) {
    return static_cast<T*>(__builtin_assume_aligned(registers.get() + place, 16));
  }
};

// Calls f(lane) for the lanes that execute.
template <class F>
void for_each_active(const Team& t, F f) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if (t.active[lane]) f(lane);
  }
}

// The operation d = f(a, ...), lane by lane. f is a function, or a lambda that captures nothing.
template <auto f, class = decltype(+f)>
struct Lanes;

template <auto f, class D, class... A>
struct Lanes<f, D (*)(A...)> {
  static void run(Team& t, const Instruction& i) { run(t, i, std::index_sequence_for<A...>()); }
  static Operation operation() { return {run, {sizeof(D), sizeof(A)...}}; }

  // A result for operand `at`, from the operands that begin with `first`.
  static void run_from(Team& t, const Instruction& i, int at, int first) {
    run_from(t, i, at, first, std::index_sequence_for<A...>());
  }

 private:
  template <size_t... k>
  static void run(Team& t, const Instruction& i, std::index_sequence<k...> each) {
    run_from(t, i, 0, 1, each);
  }
  template <size_t... k>
  static void run_from(Team& t, const Instruction& i, int at, int first,
                       std::index_sequence<k...>) {
    loop(t, t.column<D>(i.operands[at]), t.column<const A>(i.operands[first + k])...);
  }
  static void loop(const Team& t, D* d, const A*... a) {
    if (t.all_active) {
#pragma GCC ivdep
      for (int lane = 0; lane < kLanes; ++lane) d[lane] = f(a[lane]...);
    } else {
      // A predicate that was never set is no bool.
      using Kept = std::conditional_t<std::is_same_v<D, bool>, uint8_t, D>;
      auto* kept = reinterpret_cast<Kept*>(d);
#pragma GCC ivdep
      for (int lane = 0; lane < kLanes; ++lane) {
        kept[lane] = t.active[lane] ? static_cast<Kept>(f(a[lane]...)) : kept[lane];
      }
    }
  }
};

template <auto f>
Operation lanes() {
  return Lanes<f>::operation();
}

// Two results of the same operands, which no result overwrites.
template <auto f, auto g, class = decltype(+f), class = decltype(+g)>
struct Both;

template <auto f, auto g, class D, class E, class... A>
struct Both<f, g, D (*)(A...), E (*)(A...)> {
  static void run(Team& t, const Instruction& i) {
    Lanes<f>::run_from(t, i, 0, 2);
    Lanes<g>::run_from(t, i, 1, 2);
  }
  static Operation operation() { return {run, {sizeof(D), sizeof(E), sizeof(A)...}}; }
};

}  // namespace ptx

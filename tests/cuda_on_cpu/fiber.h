// A stack of its own for a function that is left and resumed. AddressSanitizer is told.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <memory>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace cuda_on_cpu {

class Fiber {
 public:
  Fiber() = default;  // for a function that runs already
  explicit Fiber(void (*function)()) : stack_(new char[kStackBytes]) {
    bottom_ = stack_.get();
    size_ = kStackBytes;
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.get();
    context_.uc_stack.ss_size = kStackBytes;
    makecontext(&context_, function, 0);
  }

  // Leaves this fiber for another, and returns when this one is resumed.
  void leave_for(Fiber& other) {
#ifdef __SANITIZE_ADDRESS__
    void* fake_stack;
    __sanitizer_start_switch_fiber(&fake_stack, other.bottom_, other.size_);
    swapcontext(&context_, &other.context_);
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#else
    swapcontext(&context_, &other.context_);
#endif
  }

  // To be called first of all by a function that `from` has left for.
  static void entered([[maybe_unused]] Fiber& from) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, &from.bottom_, &from.size_);
#endif
  }

 private:
  static constexpr size_t kStackBytes = 64 << 10;

  ucontext_t context_;
  std::unique_ptr<char[]> stack_;
  const void* bottom_ = nullptr;
  size_t size_ = 0;
};

}  // namespace cuda_on_cpu

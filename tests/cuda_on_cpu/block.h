// The threads of a block, one after another. A thread that waits at a barrier keeps its fiber, and
// those after it run on another.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <vector>

#include "fiber.h"

namespace cuda_on_cpu {

class Block {
 public:
  Block(unsigned threads, const std::function<void()>& thread);

  // Throws if a barrier does not hold all threads.
  void run(unsigned index);

  // The block of the calling thread.
  static Block& current();
  void wait(const std::source_location& barrier);

 private:
  struct Worker {
    Fiber fiber{work};
    unsigned thread = 0;
  };

  static void work();
  void resume(std::unique_ptr<Worker> worker);
  void check_barrier();

  const unsigned threads_;
  const std::function<void()>& thread_;
  const std::span<char> shared_memory_;

  Fiber scheduler_;
  unsigned next_thread_ = 0;
  Worker* worker_ = nullptr;  // that runs
  std::vector<std::unique_ptr<Worker>> idle_, waiting_;
  std::vector<std::source_location> barriers_;  // at which they wait
};

}  // namespace cuda_on_cpu

#include "block.h"

#include <link.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "cuda_runtime.h"

thread_local constinit dim3 threadIdx, blockIdx;

namespace cuda_on_cpu {
namespace {

thread_local constinit Block* current_block = nullptr;

// Where this library's thread-local variables are: those above, and the kernels' shared memory.
std::span<char> thread_local_variables() {
  std::span<char> found;
  current_block = nullptr;  // they are allocated at the first access
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* result) {
        const auto* address = reinterpret_cast<const char*>(&thread_local_variables);
        const std::span headers(info->dlpi_phdr, info->dlpi_phnum);
        const bool is_this_library = std::ranges::any_of(headers, [&](const auto& header) {
          const auto* start = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
          return header.p_type == PT_LOAD && address >= start && address < start + header.p_memsz;
        });
        if (!is_this_library) return 0;
        for (const auto& header : headers) {
          if (header.p_type != PT_TLS) continue;
          *static_cast<std::span<char>*>(result) = {static_cast<char*>(info->dlpi_tls_data),
                                                    header.p_memsz};
        }
        return 1;
      },
      &found);
  return found;
}

std::string place(const std::source_location& barrier) {
  return std::string(barrier.file_name()) + ":" + std::to_string(barrier.line());
}

}  // namespace

Block::Block(unsigned threads, const std::function<void()>& thread)
    : threads_(threads), thread_(thread), shared_memory_(thread_local_variables()) {}

Block& Block::current() { return *current_block; }

void Block::run(unsigned index) {
  // Every float there is NaN until a thread of this block writes it.
  std::ranges::fill(shared_memory_, '\xff');
  current_block = this;
  blockIdx = {index, 0, 0};
  threadIdx = {0, 0, 0};
  next_thread_ = 0;
  while (next_thread_ < threads_) {
    if (idle_.empty()) idle_.push_back(std::make_unique<Worker>());
    auto worker = std::move(idle_.back());
    idle_.pop_back();
    resume(std::move(worker));
  }
  while (!waiting_.empty()) {
    check_barrier();
    barriers_.clear();
    for (auto& worker : std::exchange(waiting_, {})) resume(std::move(worker));
  }
}

void Block::resume(std::unique_ptr<Worker> worker) {
  const size_t waiting = barriers_.size();
  worker_ = worker.get();
  threadIdx.x = worker->thread;
  scheduler_.leave_for(worker->fiber);
  (barriers_.size() > waiting ? waiting_ : idle_).push_back(std::move(worker));
}

void Block::work() {
  Fiber::entered(current_block->scheduler_);
  for (;;) {
    Block& block = *current_block;
    while (block.next_thread_ < block.threads_) {
      threadIdx.x = block.worker_->thread = block.next_thread_++;
      block.thread_();
    }
    block.worker_->fiber.leave_for(block.scheduler_);
  }
}

void Block::wait(const std::source_location& barrier) {
  barriers_.push_back(barrier);
  worker_->fiber.leave_for(scheduler_);
}

void Block::check_barrier() {
  for (const auto& barrier : barriers_) {
    if (barrier.line() != barriers_[0].line()) {
      throw std::runtime_error("threads of a block wait at " + place(barriers_[0]) + " and at " +
                               place(barrier));
    }
  }
  if (waiting_.size() < threads_) {
    throw std::runtime_error("of " + std::to_string(threads_) + " threads of a block, only " +
                             std::to_string(waiting_.size()) + " reach " + place(barriers_[0]));
  }
}

void wait_at_barrier(const std::source_location& barrier) { Block::current().wait(barrier); }

}  // namespace cuda_on_cpu

// A block of threads, and the memory that was passed to its launch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "block_order.h"
#include "copies.h"
#include "program.h"
#include "shared_memory.h"
#include "team.h"

namespace ptx {

struct Region {
  uintptr_t begin = 0, end = 0;
};

// The allocation of torch that holds the address; empty if there is none.
Region allocation_of(uintptr_t address);

// Checks an access to a memory whose addresses begin at 0.
void check_bounds(const char* memory, size_t bytes, uint64_t at, size_t size, int lane);

struct Grid {
  uint32_t blocks[3], threads[3];
  uint32_t threads_of_block() const { return threads[0] * threads[1] * threads[2]; }
};

struct Block {
  Program& program;
  const Grid& grid;
  const std::vector<char>& parameters;
  const std::vector<Region>& regions;  // of global memory
  SharedMemory shared;
  std::vector<Copies> copies;  // of each thread, into shared memory
  const bool is_dependent;     // the previous kernel may still run,
  std::vector<bool> waited;    // until a thread has waited for it
  BlockOrder order;            // of kernels with atomic updates
  int64_t index = 0;           // of this block

  // Where a fault occurs.
  int fault_thread = 0;
  int64_t fault_instruction = 0;

  Block(Program& program, const Grid& grid, const std::vector<char>& parameters,
        const std::vector<Region>& regions, size_t shared_bytes, bool is_dependent);
  void run(const uint32_t (&index)[3]);

 private:
  struct Schedule;
  void start(Schedule& s, const uint32_t (&index)[3]);
  void advance(Schedule& s);
  bool select(Schedule& s);
  void execute(Schedule& s, const Instruction& i);
  void branch(Schedule& s, const Instruction& i);
  bool pass_barrier();

  std::vector<std::unique_ptr<Schedule>> schedules_;

 public:
  ~Block();
};

}  // namespace ptx

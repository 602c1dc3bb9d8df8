// A block of threads, and the memory that its launch was given.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "allocations.h"
#include "barriers.h"
#include "program.h"
#include "shared_memory.h"
#include "team.h"

namespace ptx {

struct Grid {
  uint32_t blocks[3], threads[3];
};

struct Block {
  Program& program;
  const Grid& grid;
  const std::vector<char>& parameters;
  const std::vector<Region>& regions;  // of global memory
  SharedMemory shared;
  const bool is_dependent;   // on the kernel ahead, which may still run,
  std::vector<bool> waited;  // until a thread has waited for it

  // Of the lane that makes a fault.
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
  void wait(Schedule& s, const Instruction& i, int lane);

  Barriers barriers_;
  std::vector<std::unique_ptr<Schedule>> schedules_;

 public:
  ~Block();
};

}  // namespace ptx

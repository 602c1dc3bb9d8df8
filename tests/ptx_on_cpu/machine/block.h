// A block of threads, its shared memory and the memory that its launch was given.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "allocations.h"
#include "program.h"
#include "team.h"

namespace ptx {

struct Grid {
  uint32_t blocks[3], threads[3];
};

// Shared memory, whose every byte knows who touched it. A read of what nobody wrote, and two
// threads of which one writes without a barrier between them, are faults. Threads may write the
// same at once, as Triton's do where several hold the same number: to compute-sanitizer this is no
// more than information ("Identical data being written").
class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes) : bytes_(bytes), touched_(bytes) {}
  size_t size() const { return bytes_.size(); }
  void reset();  // for another block
  void pass_barrier() { ++interval_; }
  const char* read(size_t at, size_t size, int thread);
  void write(size_t at, size_t size, int thread, const char* data);

 private:
  static constexpr int kNobody = -1, kSeveral = -2;
  static std::string name(int thread);
  struct Touched {
    int writer = kNobody, reader = kNobody;
    int64_t written = 0, read = 0;  // the interval between barriers
  };
  std::vector<char> bytes_;
  std::vector<Touched> touched_;
  int64_t interval_ = 0;
};

struct Block {
  Program& program;
  const Grid& grid;
  const std::vector<char>& parameters;
  const std::vector<Region>& regions;  // of global memory
  SharedMemory shared;

  // Of the lane that makes a fault.
  int fault_thread = 0;
  int64_t fault_instruction = 0;

  Block(Program& program, const Grid& grid, const std::vector<char>& parameters,
        const std::vector<Region>& regions, size_t shared_bytes);
  void run(const uint32_t (&index)[3]);

 private:
  struct Schedule;
  void start(Schedule& s, const uint32_t (&index)[3]);
  void advance(Schedule& s);
  bool select(Schedule& s);
  void execute(Schedule& s, const Instruction& i);
  void branch(Schedule& s, const Instruction& i);
  void check_barrier() const;

  std::vector<std::unique_ptr<Schedule>> schedules_;

 public:
  ~Block();
};

}  // namespace ptx

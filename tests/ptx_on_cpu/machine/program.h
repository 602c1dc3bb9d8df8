// A kernel as the machine runs it. Every operand of an instruction is a column: one number for each
// of the threads that run together. Constants and special registers are columns too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace ptx {

// Threads that run together. A column of 32-bit numbers then takes 512 bytes, and the registers of
// a kernel stay in the processor's second-level cache.
constexpr int kLanes = 128;
constexpr int kWarp = 32;
constexpr int kMaxOperands = 10;

struct Team;
struct Instruction;
using Run = void (*)(Team&, const Instruction&);

enum class Kind : int64_t { plain, branch, exit, barrier };

struct Instruction {
  Run run;
  Kind kind;
  int64_t guard;  // the column of a predicate, or -1
  bool guard_negated;
  int64_t target;                  // of a branch
  int64_t offset;                  // added to an address
  int64_t operands[kMaxOperands];  // columns, by their place in bytes: results first
};

// An opcode of the machine, and the width of each operand in bytes; 1 for predicates.
struct Operation {
  Run run;
  std::vector<uint8_t> widths;
};

struct Constant {
  int64_t column, width;
  uint64_t bits;
};

enum class Special : int64_t { tid, ntid, ctaid, nctaid };

struct SpecialRegister {
  int64_t column;
  Special which;
  int64_t axis;
};

struct Program {
  std::vector<Instruction> code;
  std::vector<Constant> constants;
  std::vector<SpecialRegister> special_registers;
  std::vector<int64_t> parameter_sizes, parameter_offsets;
  size_t register_bytes, parameter_bytes, shared_bytes;
  std::vector<char> variables;  // the module's, in global memory; zero between launches
  bool has_atomics;
  std::vector<int64_t> executed;  // how often each instruction was
};

// A failed check.
struct Fault : std::runtime_error {
  explicit Fault(const std::string& what, int lane = 0) : std::runtime_error(what), lane(lane) {}
  int lane;
};

}  // namespace ptx

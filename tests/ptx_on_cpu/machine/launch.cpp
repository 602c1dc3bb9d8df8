// The machine's functions for Python: programs, and their launches.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "block.h"
#include "tables.h"

using namespace ptx;

#define PTX_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

const Table& table() {
  static const Table all = [] {
    Table t;
    add_integer_operations(t);
    add_field_operations(t);
    add_float_operations(t);
    add_special_functions(t);
    add_conversions(t);
    add_memory_operations(t);
    add_copies(t);
    add_matrix_operations(t);
    add_warp_operations(t);
    return t;
  }();
  return all;
}

int64_t blocks_at_ends = 0;

// The allocations that the parameters point into.
std::vector<Region> regions_of(const std::vector<char>& parameters) {
  std::vector<Region> regions;
  for (size_t at = 0; at + sizeof(uintptr_t) <= parameters.size(); at += sizeof(uintptr_t)) {
    uintptr_t address;
    std::memcpy(&address, parameters.data() + at, sizeof address);
    const Region region = allocation_of(address);
    if (region.end) regions.push_back(region);
  }
  return regions;
}

// Whether there was anything to clear.
bool clear(std::vector<char>& variables) {
  const bool any = std::ranges::any_of(variables, [](char byte) { return byte != 0; });
  if (any) std::ranges::fill(variables, 0);
  return any;
}

void run_blocks(Program& program, const Grid& grid, size_t shared_bytes, void** parameters,
                bool is_dependent, std::string& fault, int64_t (&where)[5]) {
  std::vector<char> memory(program.parameter_bytes);
  for (size_t k = 0; k < program.parameter_sizes.size(); ++k) {
    std::memcpy(memory.data() + program.parameter_offsets[k], parameters[k],
                static_cast<size_t>(program.parameter_sizes[k]));
  }
  std::vector<Region> regions = regions_of(memory);
  if (const auto begin = reinterpret_cast<uintptr_t>(program.variables.data())) {
    regions.push_back({begin, begin + program.variables.size()});
  }
  Block block(program, grid, memory, regions, shared_bytes, is_dependent);
  const int64_t count = int64_t{grid.blocks[0]} * grid.blocks[1] * grid.blocks[2];
  const bool is_cut = blocks_at_ends > 0 && count > 2 * blocks_at_ends;
  for (int64_t i = 0; i < count; ++i) {
    if (is_cut && i == blocks_at_ends) i = count - blocks_at_ends;
    const uint32_t index[] = {static_cast<uint32_t>(i % grid.blocks[0]),
                              static_cast<uint32_t>(i / grid.blocks[0] % grid.blocks[1]),
                              static_cast<uint32_t>(i / grid.blocks[0] / grid.blocks[1])};
    try {
      block.run(index);
    } catch (const Fault& caught) {
      fault = caught.what();
      const int64_t at[] = {block.fault_instruction, block.fault_thread, index[0], index[1],
                            index[2]};
      std::memcpy(where, at, sizeof at);
      clear(program.variables);
      return;
    }
  }
  if (clear(program.variables) && !is_cut) fault = "statecheck: a launch leaves a variable changed";
}

}  // namespace

// The number of operands of an opcode, and their widths in bytes; -1 if there is no such opcode.
PTX_EXPORT int ptx_operation(const char* name, uint8_t* widths) {
  const auto found = table().find(name);
  if (found == table().end()) return -1;
  const Operation& o = found->second;
  std::ranges::copy(o.widths, widths);
  return static_cast<int>(o.widths.size());
}

// For an instruction: kind, guard, negation, target, offset, then its operands. `names` are the
// opcodes. A constant is (column, width, bits), a special register (column, which, axis), a
// parameter (size, offset), a variable (column, offset), and `sizes` are the bytes of registers,
// parameters, shared memory and variables.
PTX_EXPORT Program* ptx_program(int64_t length, const char** names, const int64_t* fields,
                                int64_t constants, const int64_t* constant_fields, int64_t specials,
                                const int64_t* special_fields, int64_t parameters,
                                const int64_t* parameter_fields, int64_t variables,
                                const int64_t* variable_fields, const int64_t* sizes) {
  auto program = std::make_unique<Program>();
  for (int64_t k = 0; k < length; ++k, fields += 5 + kMaxOperands) {
    Instruction i = {};
    i.kind = static_cast<Kind>(fields[0]);
    if (i.kind == Kind::plain) i.run = table().find(names[k])->second.run;
    i.guard = fields[1];
    i.guard_negated = fields[2];
    i.target = fields[3];
    i.offset = fields[4];
    std::memcpy(i.operands, fields + 5, sizeof i.operands);
    program->code.push_back(i);
    program->has_atomics |= std::strncmp(names[k], "atom.", 5) == 0;
  }
  for (int64_t k = 0; k < constants; ++k, constant_fields += 3) {
    program->constants.push_back(
        {constant_fields[0], constant_fields[1], static_cast<uint64_t>(constant_fields[2])});
  }
  for (int64_t k = 0; k < specials; ++k, special_fields += 3) {
    program->special_registers.push_back(
        {special_fields[0], static_cast<Special>(special_fields[1]), special_fields[2]});
  }
  for (int64_t k = 0; k < parameters; ++k, parameter_fields += 2) {
    program->parameter_sizes.push_back(parameter_fields[0]);
    program->parameter_offsets.push_back(parameter_fields[1]);
  }
  program->register_bytes = static_cast<size_t>(sizes[0]);
  program->parameter_bytes = static_cast<size_t>(sizes[1]);
  program->shared_bytes = static_cast<size_t>(sizes[2]);
  program->variables.resize(static_cast<size_t>(sizes[3]));
  for (int64_t k = 0; k < variables; ++k, variable_fields += 2) {
    const auto address =
        reinterpret_cast<uintptr_t>(program->variables.data() + variable_fields[1]);
    program->constants.push_back({variable_fields[0], sizeof address, address});
  }
  program->executed.resize(program->code.size());
  return program.release();
}

PTX_EXPORT void ptx_forget(Program* program) { delete program; }

// How often each instruction has been executed.
PTX_EXPORT void ptx_executed(const Program* program, int64_t* counts) {
  std::memcpy(counts, program->executed.data(), program->executed.size() * sizeof *counts);
}

// Runs only the first and the last `blocks` blocks of a longer launch; 0 is no limit.
PTX_EXPORT void ptx_run_ends(int64_t blocks) { blocks_at_ends = blocks; }

// `shape` is the grid and the block. If `is_dependent`, the previous kernel may still run until
// this one waits. False after a fault: then `fault` is its text, and `where` the instruction, the
// thread and the block's three indices.
PTX_EXPORT bool ptx_launch(Program* program, const uint32_t* shape, uint64_t shared_bytes,
                           void** parameters, bool is_dependent, char* fault, size_t fault_bytes,
                           int64_t* where) {
  Grid grid;
  std::memcpy(&grid, shape, sizeof grid);
  std::string text;
  int64_t place[5] = {};
  run_blocks(*program, grid, shared_bytes, parameters, is_dependent, text, place);
  std::memcpy(where, place, sizeof place);
  std::strncpy(fault, text.c_str(), fault_bytes - 1);
  return text.empty();
}

// Matrices of 16-bit numbers that a warp moves between registers and shared memory.
#include <cstring>
#include <string>

#include "block.h"
#include "tables.h"
#include "team.h"

namespace ptx {
namespace {

// Eight rows of eight numbers, whose addresses eight lanes give, are a matrix. A lane has two
// numbers of it in a register: neighbours in a row or, of a transposed one, in a column. PTX
// ISA 9.0, sections 9.7.14.5.15 and 9.7.14.5.16.
template <int count, bool writes, bool transposed>
void access_matrices(Team& t, const Instruction& i) {
  constexpr int kRows = 8, kRowBytes = 16;
  const auto* addresses = t.column<const uint32_t>(i.operands[writes ? 0 : count]);
  SharedMemory& shared = t.block->shared;
  for (int lane = 0; lane < t.threads; ++lane) {
    if (!t.active[lane]) throw Fault("synccheck: not all lanes of a warp move its matrices", lane);
  }
  for (int warp = 0; warp < t.threads; warp += kWarp) {
    for (int row = 0; row < count * kRows; ++row) {
      const int giver = warp + row;
      const uint64_t at = static_cast<uint64_t>(addresses[giver]) + i.offset;
      check_bounds("shared memory", shared.size(), at, kRowBytes, giver);
      for (int k = 0; k < kRowBytes / 2; ++k) {
        const int outer = transposed ? k : row % kRows, inner = transposed ? row % kRows : k;
        const int lane = warp + outer * 4 + inner / 2;
        auto* word = t.column<uint32_t>(i.operands[row / kRows + writes]) + lane;
        auto* half = reinterpret_cast<char*>(word) + 2 * (inner % 2);
        if constexpr (writes) {
          shared.write(at + 2 * k, 2, t.first_thread + lane, half);
        } else {
          std::memcpy(half, shared.read(at + 2 * k, 2, t.first_thread + lane), 2);
        }
      }
    }
  }
}

template <int count, bool transposed>
void add_matrices(Table& table) {
  const std::string suffix = ".sync.aligned.m8n8.x" + std::to_string(count) +
                             (transposed ? ".trans" : "") + ".shared.b16.a32";
  std::vector<uint8_t> widths(count + 1, 4);
  table["ldmatrix" + suffix] = {access_matrices<count, false, transposed>, widths};
  table["stmatrix" + suffix] = {access_matrices<count, true, transposed>, widths};
}

template <int count>
void add_count(Table& table) {
  add_matrices<count, false>(table);
  add_matrices<count, true>(table);
}

}  // namespace

void add_matrix_operations(Table& table) {
  add_count<1>(table);
  add_count<2>(table);
  add_count<4>(table);
}

}  // namespace ptx

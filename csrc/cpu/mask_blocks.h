// Blocks of a matrix's elements in row-major order, with a byte of mask for every eight, and their
// random words. The sources that include this are compiled once per instruction set, so everything
// here has internal linkage.
#pragma once

#include "csrc/cpu/buffer.h"
#include "csrc/cpu/flags.h"
#include "csrc/cpu/loops.h"
#include "csrc/cpu/philox.h"

namespace gelu_kernels::cpu {
namespace {

// The inner loops, which take one byte per mask bit, run over a multiple of this.
constexpr int64_t kFlagVector = 64;

// Random bits are drawn for this many elements at a time.
constexpr int64_t kDrawn = 8 * kPhiloxOctets;

// The elements of a matrix in row-major order. Rows without a gap between them count as one row:
// most blocks are then read in place.
struct Elements {
  Elements(const Matrix& m, int64_t rows, int64_t n, int64_t size) : matrix(m), columns(n) {
    if (m.column_stride == size && m.row_stride == n * size) columns *= rows;
  }
  Matrix matrix;
  int64_t columns;
};

// The row and column of an element.
struct Position {
  int64_t row, column;
};

// Usually there is only one row. The divisions took 0.1 of 1.05 ns per element of a block.
Position position(int64_t element, int64_t columns) {
  if (element < columns) return {0, element};
  return {element / columns, element % columns};
}

// Calls visit(row, column, done, count) for the pieces of rows that make up n elements from `begin`
// on; `done` of them come before.
template <class Visit>
void for_each_piece(int64_t columns, int64_t begin, int64_t n, Visit visit) {
  auto [row, column] = position(begin, columns);
  for (int64_t done = 0; done < n; ++row, column = 0) {
    const int64_t rest = columns - column;
    const int64_t count = rest < n - done ? rest : n - done;
    visit(row, column, done, count);
    done += count;
  }
}

// The address of n elements from `begin` on, if they are contiguous.
template <class T>
T* in_place(const Elements& e, int64_t begin, int64_t n) {
  const auto [row, column] = position(begin, e.columns);
  if (n != kMaskBlock || e.matrix.column_stride != int64_t{sizeof(T)} || column + n > e.columns) {
    return nullptr;
  }
  return reinterpret_cast<T*>(tile_at(e.matrix, row, column).data);
}

// The same address, or the buffer with a copy of the elements.
template <class T>
const T* read(T* buffer, const Elements& e, int64_t begin, int64_t n) {
  if (const T* data = in_place<T>(e, begin, n)) return data;
  for_each_piece(e.columns, begin, n, [&](int64_t i, int64_t j, int64_t done, int64_t count) {
    copy<T>(row_of(buffer + done, count), tile_at(e.matrix, i, j), count, 1);
  });
  return buffer;
}

template <class T>
void write(const Elements& e, T* buffer, int64_t begin, int64_t n) {
  for_each_piece(e.columns, begin, n, [&](int64_t i, int64_t j, int64_t done, int64_t count) {
    copy<T>(tile_at(e.matrix, i, j), row_of(buffer + done, count), count, 1);
  });
}

// A part of the random bits of n elements from `begin` on, with less than kDrawn others behind
// them. The halves of words are in memory in the order of their elements: the processors that this
// is for, x86 and Arm, have the low half first.
template <uint32_t part>
void draw(uint16_t* halves, int64_t begin, int64_t n, const PhiloxOctets& random,
          const GlobalIndex& index) {
  const int64_t row_length = index.row_length ? index.row_length : begin + n;
  for_each_piece(row_length, begin, n, [&](int64_t, int64_t, int64_t done, int64_t count) {
    const uint64_t first = index.of(begin + done), skipped = first % kDrawn;
    const int64_t drawn = static_cast<int64_t>(skipped) + count;
    uint16_t buffer[kMaskBlock + 2 * kDrawn];
    uint16_t* const to = skipped == 0 ? halves + done : buffer;
    for (int64_t k = 0; k < drawn; k += kDrawn) {
      random.draw<part>(reinterpret_cast<char*>(to + k),
                        (first - skipped + static_cast<uint64_t>(k)) / 8);
    }
    if (skipped != 0) {
      memcpy(halves + done, buffer + skipped, static_cast<size_t>(count) * sizeof *halves);
    }
  });
}

// All random bits of n elements, likewise.
void draw_words(uint32_t* words, int64_t begin, int64_t n, const PhiloxOctets& random,
                const GlobalIndex& index) {
  uint16_t first[kMaskBlock + kDrawn], second[kMaskBlock + kDrawn];
  draw<0>(first, begin, n, random, index);
  draw<1>(second, begin, n, random, index);
  for (int64_t i = 0; i < n; ++i) words[i] = uint32_t{first[i]} << 16 | second[i];
}

// A selection that g++ vectorises for any instruction set.
template <class T>
GELU_KERNELS_HD T flagged(bool flag, T t) {
  return flag ? t : T(0);
}

}  // namespace
}  // namespace gelu_kernels::cpu

// Compiled once for each instruction set, as loops.cpp is, and with the same care.
#include "csrc/cpu/soi_loops.h"

#include "csrc/cpu/buffer.h"
#include "csrc/cpu/philox.h"
#include "csrc/gates/storage.h"
#include "csrc/random/bernoulli.h"

namespace gelu_kernels::cpu {
namespace {

// What the inner loops run over, with one byte for each element of the mask, is a multiple of this.
constexpr int64_t kFlagVector = 64;

// Eight flags, each 0 or 1, to a byte of the mask: the product shifts flag i to bit 56 + i, and no
// two of its terms meet.
void pack(uint8_t* mask, const uint8_t* flags, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) {
    uint64_t eight;
    memcpy(&eight, flags + 8 * i, 8);
    mask[i] = static_cast<uint8_t>(eight * 0x0102040810204080 >> 56);
  }
}

// And back: of a copy of the byte in byte i, bit i is carried to the top and then moved to the
// bottom.
void unpack(uint8_t* flags, const uint8_t* mask, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) {
    const uint64_t bits = mask[i] * 0x0101010101010101 & 0x8040201008040201;
    const uint64_t eight = ((bits + 0x7f7f7f7f7f7f7f7f) & 0x8080808080808080) >> 7;
    memcpy(flags + 8 * i, &eight, 8);
  }
}

// Calls visit(row, column, done, count) for the pieces of rows that make up n elements from `begin`
// on; `done` of them come before.
template <class Visit>
void for_each_piece(int64_t columns, int64_t begin, int64_t n, Visit visit) {
  int64_t row = begin / columns, column = begin % columns;
  for (int64_t done = 0; done < n; ++row, column = 0) {
    const int64_t rest = columns - column;
    const int64_t count = rest < n - done ? rest : n - done;
    visit(row, column, done, count);
    done += count;
  }
}

template <class T>
bool lie_in_place(const Elements& e, int64_t begin, int64_t n) {
  return n == kMaskBlock && e.matrix.column_stride == int64_t{sizeof(T)} &&
         begin % e.columns + n <= e.columns;
}

// Where the elements are in place, or the buffer with a copy of them.
template <class T>
const T* read(T* buffer, const Elements& e, int64_t begin, int64_t n) {
  if (lie_in_place<T>(e, begin, n)) {
    return reinterpret_cast<const T*>(tile_at(e.matrix, begin / e.columns, begin % e.columns).data);
  }
  for_each_piece(e.columns, begin, n, [&](int64_t i, int64_t j, int64_t done, int64_t count) {
    copy<T>(packed(buffer + done, count), tile_at(e.matrix, i, j), count, 1);
  });
  return buffer;
}

// The same for elements that `write` is to finish.
template <class T>
T* place(T* buffer, const Elements& e, int64_t begin, int64_t n) {
  if (!lie_in_place<T>(e, begin, n)) return buffer;
  return reinterpret_cast<T*>(tile_at(e.matrix, begin / e.columns, begin % e.columns).data);
}
template <class T>
void write(const Elements& e, T* buffer, int64_t begin, int64_t n) {
  if (lie_in_place<T>(e, begin, n)) return;
  for_each_piece(e.columns, begin, n, [&](int64_t i, int64_t j, int64_t done, int64_t count) {
    copy<T>(tile_at(e.matrix, i, j), packed(buffer + done, count), count, 1);
  });
}

// The random words of n elements from `begin` on.
void draw(uint32_t* words, int64_t begin, int64_t n, const PhiloxGroups& random,
          const GlobalIndex& index) {
  const int64_t row_length = index.row_length ? index.row_length : begin + n;
  for_each_piece(row_length, begin, n, [&](int64_t, int64_t, int64_t done, int64_t count) {
    const uint64_t first = index.of(begin + done);
    const int64_t skipped = static_cast<int64_t>(first % 4);
    alignas(64) uint32_t groups[kMaskBlock + 4 * kPhiloxGroups];
    random.draw(groups, round_up((skipped + count + 3) / 4, kPhiloxGroups), first / 4);
    memcpy(words + done, groups + skipped, static_cast<size_t>(count) * sizeof *words);
  });
}

// t if flag is 1, 0 if it is 0: a selection that g++ vectorises for any instruction set.
GELU_KERNELS_HD uint16_t flagged(uint32_t flag, uint16_t t) {
  return static_cast<uint16_t>(t & (0 - flag));
}
GELU_KERNELS_HD float flagged(uint32_t flag, float t) { return from_bits(bits(t) & (0 - flag)); }
GELU_KERNELS_HD double flagged(uint32_t flag, double t) {
  return from_bits(bits(t) & (uint64_t{0} - flag));
}

// The hot loops. n is a multiple of kFlagVector.
template <class Gate, class Precision, class T>
void select(int64_t n, T* __restrict y, uint8_t* __restrict flags, const T* __restrict x,
            const uint32_t* __restrict words) {
  n &= ~(kFlagVector - 1);
  for (int64_t i = 0; i < n; ++i) {
    const bool m = bernoulli<Gate>(static_cast<float>(Storage<Precision>::load(x[i])), words[i]);
    y[i] = flagged(m, x[i]);
    flags[i] = m;
  }
}
template <class Gate, class Precision, class T>
void select_sum(int64_t n, T* __restrict y, uint8_t* __restrict flags, const T* __restrict x,
                const T* __restrict bias, const uint32_t* __restrict words) {
  n &= ~(kFlagVector - 1);
  for (int64_t i = 0; i < n; ++i) {
    const auto sum = Storage<Precision>::load(x[i]) + Storage<Precision>::load(bias[i]);
    const bool m = bernoulli<Gate>(static_cast<float>(sum), words[i]);
    y[i] = flagged(m, Storage<Precision>::store(sum));
    flags[i] = m;
  }
}
template <class T>
void select_flagged(int64_t n, T* __restrict dx, const T* __restrict dy,
                    const uint8_t* __restrict flags) {
  n &= ~(kFlagVector - 1);
  for (int64_t i = 0; i < n; ++i) dx[i] = flagged(flags[i], dy[i]);
}

template <class Gate, class Precision>
void forward(Elements y, uint8_t* mask, Elements x, Elements bias, int64_t begin, int64_t end,
             uint64_t seed, GlobalIndex index) {
  using T = StorageOf<Precision>;
  T y_buffer[kMaskBlock], x_buffer[kMaskBlock] = {}, bias_buffer[kMaskBlock] = {};
  uint32_t words[kMaskBlock] = {};
  uint8_t flags[kMaskBlock];
  const PhiloxGroups random(seed);
  for (int64_t i = begin; i < end; i += kMaskBlock) {
    const int64_t n = end - i < kMaskBlock ? end - i : kMaskBlock;
    const int64_t padded = round_up(n, kFlagVector);
    draw(words, i, n, random, index);
    const T* x_in = read(x_buffer, x, i, n);
    T* y_out = place(y_buffer, y, i, n);
    if (bias.matrix.data) {
      const T* bias_in = read(bias_buffer, bias, i, n);
      select_sum<Gate, Precision>(padded, y_out, flags, x_in, bias_in, words);
    } else {
      select<Gate, Precision>(padded, y_out, flags, x_in, words);
    }
    write(y, y_out, i, n);
    for (int64_t p = n; p < padded; ++p) flags[p] = 0;
    pack(mask + i / 8, flags, (n + 7) / 8);
  }
}

template <class T>
void backward(Elements dx, Elements dy, const uint8_t* mask, int64_t begin, int64_t end) {
  T dx_buffer[kMaskBlock], dy_buffer[kMaskBlock] = {};
  uint8_t flags[kMaskBlock] = {};
  for (int64_t i = begin; i < end; i += kMaskBlock) {
    const int64_t n = end - i < kMaskBlock ? end - i : kMaskBlock;
    unpack(flags, mask + i / 8, (n + 7) / 8);
    T* dx_out = place(dx_buffer, dx, i, n);
    select_flagged(round_up(n, kFlagVector), dx_out, read(dy_buffer, dy, i, n), flags);
    write(dx, dx_out, i, n);
  }
}

template <class Precision, class T>
void add_row(int64_t n, typename Precision::Real* __restrict sum, T* __restrict dx,
             const T* __restrict dy, const uint8_t* __restrict flags) {
  n &= ~(kFlagVector - 1);
  for (int64_t j = 0; j < n; ++j) {
    dx[j] = flagged(flags[j], dy[j]);
    sum[j] += Storage<Precision>::load(dx[j]);
  }
}

template <class Precision>
void backward_column_sums(Matrix dx, Matrix dy, const uint8_t* mask, int64_t first_bit,
                          int64_t row_bits, void* partial, int64_t columns, int64_t rows) {
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;
  Real sum[kRowLanes][kColumnTile] = {};
  T dx_row[kColumnTile], dy_row[kColumnTile] = {};
  uint8_t flags[kColumnTile + 8] = {};
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t bit = first_bit + i * row_bits, skipped = bit % 8;
    unpack(flags, mask + bit / 8, (skipped + columns + 7) / 8);
    copy<T>(packed(dy_row, columns), tile_at(dy, i, 0), columns, 1);
    add_row<Precision>(round_up(columns, kFlagVector), sum[i % kRowLanes], dx_row, dy_row,
                       flags + skipped);
    copy<T>(tile_at(dx, i, 0), packed(dx_row, columns), columns, 1);
  }
  for (int lane = 1; lane < kRowLanes; ++lane) {
    for (int64_t j = 0; j < kColumnTile; ++j) sum[0][j] += sum[lane][j];
  }
  memcpy(partial, sum[0], static_cast<size_t>(columns) * sizeof(Real));
}

template <class Gate>
void count_in_tail(uint32_t* counts, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t count = 0;
    for (uint32_t bit = uint32_t{1} << 31; bit != 0; bit >>= 1) {
      const uint32_t more = count | bit;
      if (Gate::in_tail(x[i], static_cast<float>(more - 1))) count = more;
    }
    counts[i] = count;
  }
}

template <class Gate, class Precision>
constexpr SoiLoops loops_of() {
  return {forward<Gate, Precision>, backward<StorageOf<Precision>>, backward_column_sums<Precision>,
          count_in_tail<Gate>};
}

}  // namespace

#define GELU_KERNELS_JOIN(a, b) a##b
#define GELU_KERNELS_SOI(capability) GELU_KERNELS_JOIN(soi_, capability)

// Indexed by Gate, then Dtype.
extern const SoiLoops GELU_KERNELS_SOI(GELU_KERNELS_CAPABILITY)[][4];
const SoiLoops GELU_KERNELS_SOI(GELU_KERNELS_CAPABILITY)[][4] = {
#define GELU_KERNELS_LOOPS(name, Type, approximate) \
  {loops_of<Type, fp64>(), loops_of<Type, fp32>(), loops_of<Type, fp16>(), loops_of<Type, bf16>()},
    GELU_KERNELS_FOR_EACH_GATE(GELU_KERNELS_LOOPS)
#undef GELU_KERNELS_LOOPS
};

}  // namespace gelu_kernels::cpu

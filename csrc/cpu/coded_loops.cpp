// Compiled once per instruction set; the rules of loops.cpp hold here too.
#include "csrc/cpu/coded_loops.h"

#include "csrc/cpu/chunks.h"
#include "csrc/cpu/mask_blocks.h"

namespace gelu_kernels::cpu {
namespace {

// n is a multiple of kFlagVector in all inner loops.
template <class Precision, class T, class Real>
void store_values(int64_t n, T* __restrict y, const Real* __restrict value) {
  const auto loop = []<class Stored>(Stored, int64_t n, auto* __restrict y,
                                     const Real* __restrict value) {
    for (int64_t i = 0; i < n; ++i) y[i] = Storage<Stored>::store_value(value[i]);
  };
  in_chunks<Precision, kFlagVector>(n, loop, y, value);
}
template <class Precision, class T, class Real>
void store_sums(int64_t n, T* __restrict y, const Real* __restrict value) {
  const auto loop = []<class Stored>(Stored, int64_t n, auto* __restrict y,
                                     const Real* __restrict value) {
    for (int64_t i = 0; i < n; ++i) y[i] = Storage<Stored>::store(value[i]);
  };
  in_chunks<Precision, kFlagVector>(n, loop, y, value);
}
template <class Precision, class T, class Real>
void store_kept(int64_t n, T* __restrict y, const Real* __restrict value,
                const uint32_t* __restrict words, uint32_t threshold, Real scale) {
  const auto loop = [=]<class Stored>(Stored, int64_t n, auto* __restrict y,
                                      const Real* __restrict value,
                                      const uint32_t* __restrict words) {
    for (int64_t i = 0; i < n; ++i) {
      y[i] = flagged(words[i] >= threshold, Storage<Stored>::store(value[i] * scale));
    }
  };
  in_chunks<Precision, kFlagVector>(n, loop, y, value, words);
}

template <class Real>
void encode_nearest(int64_t n, uint8_t* __restrict codes, const Real* __restrict derivative,
                    const Codebook& c) {
  n &= ~(kFlagVector - 1);
  for (int64_t i = 0; i < n; ++i) {
    codes[i] = static_cast<uint8_t>(encode(static_cast<float>(derivative[i]), 0.5f, c));
  }
}
template <class Real>
void encode_random(int64_t n, uint8_t* __restrict codes, const Real* __restrict derivative,
                   const uint32_t* __restrict words, const Codebook& c, const Rounding& rounding,
                   uint32_t threshold) {
  n &= ~(kFlagVector - 1);
  const int32_t zero = static_cast<int32_t>(c.zero);
  for (int64_t i = 0; i < n; ++i) {
    const int32_t code = encode(static_cast<float>(derivative[i]), rounding.of(words[i]), c);
    codes[i] = static_cast<uint8_t>(words[i] >= threshold ? code : zero);
  }
}

// Packs two 4-bit codes into a byte. A pair is read as one 16-bit number: x86 and Arm are
// little-endian.
void pack_pairs(uint8_t* __restrict packed, const uint8_t* __restrict codes, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) {
    uint16_t pair;
    memcpy(&pair, codes + 2 * i, 2);
    packed[i] = static_cast<uint8_t>(pair | pair >> 4);
  }
}
void unpack_pairs(uint8_t* __restrict codes, const uint8_t* __restrict packed, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) {
    const uint16_t pair = static_cast<uint16_t>((packed[i] | packed[i] << 4) & 0x0f0f);
    memcpy(codes + 2 * i, &pair, 2);
  }
}

// The codes of n elements from `first` on, one byte each, in the buffer or in place. If `first` is
// odd they start in the middle of a byte, and the buffer has one more code.
const uint8_t* read_codes(uint8_t* buffer, const uint8_t* code, int64_t first, int64_t n,
                          const Decoder& decoder) {
  if (decoder.codebook.bits == 8) {
    memcpy(buffer, code + first, static_cast<size_t>(n));
    return buffer;
  }
  const int64_t skipped = first % 2;
  unpack_pairs(buffer, code + first / 2, (skipped + n + 1) / 2);
  return buffer + skipped;
}

template <class Precision>
void forward(const CodedForwardOperands& m, Evaluate evaluate, int64_t begin, int64_t end) {
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;
  const Elements y(m.y, m.rows, m.columns, sizeof(T)), x(m.x, m.rows, m.columns, sizeof(T));
  const Elements bias({const_cast<char*>(m.bias), sizeof(T), 0}, 1, m.columns, sizeof(T));
  T y_buffer[kMaskBlock], x_buffer[kMaskBlock] = {}, bias_buffer[kMaskBlock] = {};
  Real value[kMaskBlock], derivative[kMaskBlock];
  uint32_t words[kMaskBlock] = {};
  uint8_t codes[kMaskBlock];
  const PhiloxOctets random(m.is_random ? m.seed.get() : 0);
  const Codebook codebook = m.codebook;
  const Rounding rounding = m.rounding;
  const uint32_t threshold = m.threshold;
  // Without a bias, -0 is added, which changes no number.
  if (!m.bias) {
    for (T& zero : bias_buffer) zero = Storage<Precision>::store(Real(-0.0));
  }
  for (int64_t i = begin; i < end; i += kMaskBlock) {
    const int64_t n = end - i < kMaskBlock ? end - i : kMaskBlock;
    const int64_t padded = round_up(n, kFlagVector);
    if (m.is_random) draw_words(words, i, n, random, m.index);
    evaluate(padded, value, derivative, read(x_buffer, x, i, n),
             m.bias ? read(bias_buffer, bias, i, n) : bias_buffer);

    T* y_place = in_place<T>(y, i, n);
    T* y_out = y_place ? y_place : y_buffer;
    if (m.drops) {
      store_kept<Precision>(padded, y_out, value, words, threshold, m.factor.as<Real>());
    } else if (m.bias) {
      store_sums<Precision>(padded, y_out, value);
    } else {
      store_values<Precision>(padded, y_out, value);
    }
    if (!y_place) write(y, y_buffer, i, n);

    if (m.is_random) {
      encode_random(padded, codes, derivative, words, codebook, rounding, threshold);
    } else {
      encode_nearest(padded, codes, derivative, codebook);
    }
    if (codebook.bits == 4) {
      if (n % 2) codes[n] = 0;
      pack_pairs(m.code + i / 2, codes, (n + 1) / 2);
    } else {
      memcpy(m.code + i, codes, static_cast<size_t>(n));
    }
  }
}

template <class Precision, class T>
void multiply(int64_t n, T* __restrict dx, const T* __restrict dy, const uint8_t* __restrict codes,
              const Decoder& decoder) {
  using Real = typename Precision::Real;
  const auto loop = [&decoder]<class Stored>(Stored, int64_t n, auto* __restrict dx,
                                             const auto* __restrict dy,
                                             const uint8_t* __restrict codes) {
    for (int64_t i = 0; i < n; ++i) {
      const Real factor = decoder.template factor<Real>(codes[i]);
      dx[i] = Storage<Stored>::store(Storage<Stored>::load(dy[i]) * factor);
    }
  };
  in_chunks<Precision, kFlagVector>(n, loop, dx, dy, codes);
}

template <class Precision>
void backward(const CodedBackwardOperands& m, int64_t begin, int64_t end) {
  using T = StorageOf<Precision>;
  const Elements dx(m.dx, m.rows, m.columns, sizeof(T)), dy(m.dy, m.rows, m.columns, sizeof(T));
  T dx_buffer[kMaskBlock], dy_buffer[kMaskBlock] = {};
  uint8_t buffer[kMaskBlock] = {};
  const Decoder decoder = m.decoder;
  for (int64_t i = begin; i < end; i += kMaskBlock) {
    const int64_t n = end - i < kMaskBlock ? end - i : kMaskBlock;
    T* dx_place = in_place<T>(dx, i, n);
    multiply<Precision>(round_up(n, kFlagVector), dx_place ? dx_place : dx_buffer,
                        read(dy_buffer, dy, i, n), read_codes(buffer, m.code, i, n, decoder),
                        decoder);
    if (!dx_place) write(dx, dx_buffer, i, n);
  }
}

template <class Precision, class T>
void add_row(int64_t n, typename Precision::Real* __restrict sum, T* __restrict dx,
             const T* __restrict dy, const uint8_t* __restrict codes, const Decoder& decoder) {
  using Real = typename Precision::Real;
  const auto loop = [&decoder]<class Stored>(Stored, int64_t n, Real* __restrict sum,
                                             auto* __restrict dx, const auto* __restrict dy,
                                             const uint8_t* __restrict codes) {
    for (int64_t j = 0; j < n; ++j) {
      const Real factor = decoder.template factor<Real>(codes[j]);
      const Real unrounded = Storage<Stored>::load(dy[j]) * factor;
      dx[j] = Storage<Stored>::store(unrounded);
      sum[j] += unrounded;
    }
  };
  in_chunks<Precision, kFlagVector>(n, loop, sum, dx, dy, codes);
}

template <class Precision>
void backward_column_sums(const ColumnSums& m, int64_t row, int64_t column, int64_t place,
                          int64_t columns, int64_t rows) {
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;
  Real sum[kRowLanes][kColumnTile] = {};
  T dx_row[kColumnTile], dy_row[kColumnTile] = {};
  uint8_t buffer[kColumnTile + 2] = {};
  const Decoder decoder = {m.codebook, m.factor};
  const Matrix dx = tile_at(m.dx, row, column), dy = tile_at(m.dy, row, column);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t first = (row + i) * m.columns + column;
    copy<T>(row_of(dy_row, columns), tile_at(dy, i, 0), columns, 1);
    add_row<Precision>(round_up(columns, kFlagVector), sum[i % kRowLanes], dx_row, dy_row,
                       read_codes(buffer, m.code, first, columns, decoder), decoder);
    copy<T>(tile_at(dx, i, 0), row_of(dx_row, columns), columns, 1);
  }
  for (int lane = 1; lane < kRowLanes; ++lane) {
    for (int64_t j = 0; j < kColumnTile; ++j) sum[0][j] += sum[lane][j];
  }
  memcpy(static_cast<Real*>(m.partials[0]) + place, sum[0],
         static_cast<size_t>(columns) * sizeof(Real));
}

template <class Precision>
constexpr CodedLoops loops_of() {
  return {forward<Precision>, backward<Precision>, backward_column_sums<Precision>};
}

}  // namespace

#define GELU_KERNELS_JOIN(a, b) a##b
#define GELU_KERNELS_CODED(capability) GELU_KERNELS_JOIN(coded_, capability)

// Indexed by Dtype.
extern const CodedLoops GELU_KERNELS_CODED(GELU_KERNELS_CAPABILITY)[4];
const CodedLoops GELU_KERNELS_CODED(GELU_KERNELS_CAPABILITY)[4] = {
    loops_of<fp64>(), loops_of<fp32>(), loops_of<fp16>(), loops_of<bf16>()};

}  // namespace gelu_kernels::cpu

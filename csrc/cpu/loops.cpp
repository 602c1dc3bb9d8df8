// Compiled once for each instruction set, with GELU_KERNELS_CAPABILITY naming it. Everything but
// the table at the end has internal linkage, and no library header with inline functions is
// included: the linker must never put code built for one instruction set into the path of another.
#include "csrc/cpu/loops.h"

#include <utility>

#include "csrc/cpu/buffer.h"
#include "csrc/cpu/chunks.h"
#include "csrc/gates/column_sums.h"
#include "csrc/gates/pointwise.h"
#include "csrc/gates/storage.h"

namespace gelu_kernels::cpu {
namespace {

constexpr int64_t kBlock = 256;

// The four vectors that the hot loop of AVX-512 computes at a time. Shorter rows are quicker in a
// buffer, several together; outside it, float32 rows of 64 to 255 elements take 0.4 to 0.7 of the
// time, bfloat16 rows of 128 to 255 elements 0.7 to 0.9.
constexpr int64_t kLeastBytesInPlace = 256;

// The hot loop. n is a multiple of kVector.
template <class Function, class Precision, class T, class... Inputs>
void run(int64_t n, T* __restrict out, const Inputs* __restrict... in) {
  const auto loop = []<class Stored>(Stored, int64_t n, auto* __restrict out,
                                     const auto* __restrict... in) {
#pragma GCC unroll kUnroll
    for (int64_t i = 0; i < n; ++i) out[i] = apply<Function, Stored>(in[i]...);
  };
  in_chunks<Precision, kVector>(n, loop, out, in...);
}
template <class Function, class Precision, class T, class... Inputs>
void run_two(int64_t n, T* __restrict first, T* __restrict second, const Inputs* __restrict... in) {
  const auto loop = []<class Stored>(Stored, int64_t n, auto* __restrict first,
                                     auto* __restrict second, const auto* __restrict... in) {
#pragma GCC unroll kUnroll
    for (int64_t i = 0; i < n; ++i) {
      const auto results = apply<Function, Stored>(in[i]...);
      first[i] = results.first;
      second[i] = results.second;
    }
  };
  in_chunks<Precision, kVector>(n, loop, first, second, in...);
}
template <class Function, class Precision, class T, size_t... k>
void run_on(int64_t n, T* const* operands, std::index_sequence<k...>) {
  const auto input = [=](size_t i) -> const T* { return operands[Function::outputs + i]; };
  if constexpr (Function::outputs == 2) {
    run_two<Function, Precision>(n, operands[0], operands[1], input(k)...);
  } else {
    run<Function, Precision>(n, operands[0], input(k)...);
  }
}
template <class Function, class Precision, class T>
void run_on(int64_t n, T* const* operands) {
  run_on<Function, Precision>(n, operands, std::make_index_sequence<Function::inputs>());
}

// What the formulas take of each location and scale, in their place.
template <class Function, class Real>
void prepare(int64_t n, const Real* __restrict loc, Real* __restrict scale,
             Real* __restrict inverse) {
  n &= ~(kVector - 1);
  for (int64_t j = 0; j < n; ++j) {
    const Column<Real> column = Function::column(loc[j], scale[j]);
    scale[j] = column.extra;
    inverse[j] = column.inverse;
  }
}
template <class Function, class Precision, class T, class Real>
void run_located(int64_t n, T* __restrict y, const T* __restrict x, const Real* __restrict loc,
                 const Real* __restrict extra, const Real* __restrict inverse) {
  const auto loop = []<class Stored>(Stored, int64_t n, auto* __restrict y,
                                     const auto* __restrict x, const Real* __restrict loc,
                                     const Real* __restrict extra, const Real* __restrict inverse) {
    using S = Storage<Stored>;
#pragma GCC unroll kUnroll
    for (int64_t j = 0; j < n; ++j) {
      y[j] = S::store(Function::apply(S::load(x[j]), loc[j], extra[j], inverse[j]));
    }
  };
  in_chunks<Precision, kVector>(n, loop, y, x, loc, extra, inverse);
}
// Whole vectors of rows, read and written in place, with the same location and scale in every row.
// Returns the number of columns done.
template <class Function, class Precision>
int64_t map_located(char** data, const int64_t* strides, int64_t columns, int64_t rows) {
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;
  const int64_t whole = columns & ~(kVector - 1);
  for (int64_t j = 0; j < whole; j += kBlock) {
    const int64_t width = whole - j < kBlock ? whole - j : kBlock;
    Real numbers[3][kBlock];
    for (int k = 0; k < 2; ++k) {
      const T* stored = reinterpret_cast<const T*>(data[2 + k]) + j;
      for (int64_t i = 0; i < width; ++i) numbers[k][i] = Storage<Precision>::load(stored[i]);
    }
    prepare<Function>(width, numbers[0], numbers[1], numbers[2]);
    for (int64_t i = 0; i < rows; ++i) {
      const auto row = [=](int k) {
        return reinterpret_cast<T*>(data[k] + i * strides[4 + k]) + j;
      };
      run_located<Function, Precision>(width, row(0), row(1), numbers[0], numbers[1], numbers[2]);
    }
  }
  return whole;
}

template <class Function, class Precision>
void map(char** data, const int64_t* strides, int64_t columns, int64_t rows) {
  using T = StorageOf<Precision>;
  constexpr int outputs = Function::outputs, operands = outputs + Function::inputs;
  bool contiguous = true;
  for (int k = 0; k < operands; ++k) contiguous &= strides[k] == int64_t{sizeof(T)};

  // Whole vectors of contiguous rows are read and written in place.
  int64_t whole = 0;
  const bool is_long = columns * int64_t{sizeof(T)} >= kLeastBytesInPlace;
  const bool in_place = contiguous && (rows == 1 || is_long);
  if constexpr (requires { Function::has_scale; }) {
    const bool is_same = strides[operands + 2] == 0 && strides[operands + 3] == 0;
    if (in_place && is_same) whole = map_located<Function, Precision>(data, strides, columns, rows);
  }
  if (in_place && whole == 0) {
    whole = columns & ~(kVector - 1);
    for (int64_t i = 0; i < rows && whole > 0; ++i) {
      T* row[operands];
      for (int k = 0; k < operands; ++k) {
        row[k] = reinterpret_cast<T*>(data[k] + i * strides[operands + k]);
      }
      run_on<Function, Precision>(whole, row);
    }
  }

  // The rest, up to kBlock elements at a time: several short rows, or a piece of a long one.
  T buffer[operands][kBlock];
  T* row[operands];
  for (int k = 0; k < operands; ++k) row[k] = buffer[k];
  for (int64_t j = whole; j < columns; j += kBlock) {
    const int64_t width = columns - j < kBlock ? columns - j : kBlock;
    const int64_t height = kBlock / width;
    for (int64_t i = 0; i < rows; i += height) {
      const int64_t count = rows - i < height ? rows - i : height;
      const int64_t elements = width * count, padded = round_up(elements);
      const auto tile = [=](int k) {
        const int64_t row_stride = strides[operands + k];
        return Matrix{data[k] + i * row_stride + j * strides[k], strides[k], row_stride};
      };
      for (int k = outputs; k < operands; ++k) {
        copy<T>(row_of(row[k], width), tile(k), width, count);
        for (int64_t p = elements; p < padded; ++p) row[k][p] = 0;
      }
      run_on<Function, Precision>(padded, row);
      for (int k = 0; k < outputs; ++k) {
        copy<T>(tile(k), row_of(row[k], width), width, count);
      }
    }
  }
}

// The derivative that is evaluated.
enum class Derivative { kNone, kToMultiply, kToEncode };

template <class Gate, class Precision, bool kValue, Derivative kDerivative, class T, class Real>
void evaluate_block(int64_t n, Real* __restrict value, Real* __restrict derivative,
                    const T* __restrict x, const T* __restrict bias) {
  const auto loop = []<class Stored>(Stored, int64_t n, [[maybe_unused]] Real* __restrict value,
                                     [[maybe_unused]] Real* __restrict derivative,
                                     const auto* __restrict x, const auto* __restrict bias) {
    using S = Storage<Stored>;
#pragma GCC unroll kUnroll
    for (int64_t i = 0; i < n; ++i) {
      const Real sum = S::load(x[i]) + S::load(bias[i]);
      if constexpr (kValue) value[i] = Gate::template value<Precision>(sum);
      if constexpr (kDerivative == Derivative::kToMultiply) {
        derivative[i] = Gate::template derivative<Precision>(sum);
      } else if constexpr (kDerivative == Derivative::kToEncode) {
        derivative[i] = Gate::template derivative_to_encode<Precision>(sum);
      }
    }
  };
  in_chunks<Precision, kVector>(n, loop, value, derivative, x, bias);
}
template <class Gate, class Precision, bool kValue, Derivative kDerivative>
void evaluate(int64_t n, void* value, void* derivative, const void* x, const void* bias) {
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;
  evaluate_block<Gate, Precision, kValue, kDerivative>(
      n, static_cast<Real*>(value), static_cast<Real*>(derivative), static_cast<const T*>(x),
      static_cast<const T*>(bias));
}

// A row of dx, and of the terms that are added to the sums.
template <class Gate, class Precision>
struct BiasRow {
  static constexpr int parameters = 1, numbers = 1;  // of a column: those stored, and all
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;

  static void run(int64_t n, T* __restrict dx, const T* __restrict dy, const T* __restrict x,
                  const Real* __restrict bias, Real* __restrict sum) {
    const auto loop = []<class Stored>(Stored, int64_t n, auto* __restrict dx,
                                       const auto* __restrict dy, const auto* __restrict x,
                                       const Real* __restrict bias, Real* __restrict sum) {
      using S = Storage<Stored>;
#pragma GCC unroll kUnroll
      for (int64_t j = 0; j < n; ++j) {
        const auto derivative = Gate::template derivative<Precision>(S::load(x[j]) + bias[j]);
        const auto unrounded = S::load(dy[j]) * derivative;
        dx[j] = S::store(unrounded);
        sum[j] += unrounded;
      }
    };
    in_chunks<Precision, kVector>(n, loop, dx, dy, x, bias, sum);
  }
};
template <class Gate, class Precision>
struct CdfRow {
  static constexpr int parameters = 2, numbers = 3;
  using Function = CdfBackward<Gate, Precision>;
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;

  static void run(int64_t n, T* __restrict dx, const T* __restrict dy, const T* __restrict x,
                  const Real* __restrict loc, const Real* __restrict extra,
                  const Real* __restrict inverse, Real* __restrict loc_sum,
                  Real* __restrict scale_sum) {
    const auto loop = []<class Stored>(Stored, int64_t n, auto* __restrict dx,
                                       const auto* __restrict dy, const auto* __restrict x,
                                       const Real* __restrict loc, const Real* __restrict extra,
                                       const Real* __restrict inverse, Real* __restrict loc_sum,
                                       Real* __restrict scale_sum) {
      using S = Storage<Stored>;
#pragma GCC unroll kUnroll
      for (int64_t j = 0; j < n; ++j) {
        const auto gradients =
            Function::apply(S::load(dy[j]), S::load(x[j]), loc[j], extra[j], inverse[j]);
        dx[j] = S::store(gradients.dx);
        Function::add(gradients.of_loc, gradients.of_scale, loc_sum[j], scale_sum[j]);
      }
    };
    in_chunks<Precision, kVector>(n, loop, dx, dy, x, loc, extra, inverse, loc_sum, scale_sum);
  }
};

template <class Row, class Precision>
void column_sums(const ColumnSums& m, int64_t row, int64_t column, int64_t place, int64_t columns,
                 int64_t rows) {
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;
  constexpr int parameters = Row::parameters;
  constexpr auto each_number = std::make_index_sequence<Row::numbers>();
  constexpr auto each_sum = std::make_index_sequence<parameters>();
  Matrix dx = tile_at(m.dx, row, column);
  Matrix dy = tile_at(m.dy, row, column);
  Matrix x = tile_at(m.x, row, column);
  Real number[Row::numbers][kColumnTile] = {};
  for (int k = 0; k < parameters; ++k) {
    for (int64_t j = 0; j < columns; ++j) {
      const auto* stored = reinterpret_cast<const T*>(m.parameters[k]);
      number[k][j] = Storage<Precision>::load(stored[column + j]);
    }
  }
  if constexpr (Row::numbers == 3) {
    prepare<typename Row::Function>(kColumnTile, number[0], number[1], number[2]);
  }
  // Clearing and adding all the sums would take as long as a tile of 128 columns itself.
  const int64_t padded = round_up(columns);
  Real sum[parameters][kRowLanes][kColumnTile];
  for (auto& lanes : sum) {
    for (Real* lane : lanes) memset(lane, 0, static_cast<size_t>(padded) * sizeof(Real));
  }
  T buffer[3][kColumnTile] = {};
  const auto in_place = [=](Matrix m) {
    return padded == columns && m.column_stride == int64_t{sizeof(T)};
  };
  const bool copy_dx = !in_place(dx), copy_dy = !in_place(dy), copy_x = !in_place(x);
  for (int64_t i = 0; i < rows; ++i) {
    if (copy_dy) copy<T>(row_of(buffer[1], columns), dy, columns, 1);
    if (copy_x) copy<T>(row_of(buffer[2], columns), x, columns, 1);
    [&]<size_t... k, size_t... s>(std::index_sequence<k...>, std::index_sequence<s...>) {
      Row::run(padded, copy_dx ? buffer[0] : reinterpret_cast<T*>(dx.data),
               copy_dy ? buffer[1] : reinterpret_cast<T*>(dy.data),
               copy_x ? buffer[2] : reinterpret_cast<T*>(x.data), number[k]...,
               sum[s][i % kRowLanes]...);
    }(each_number, each_sum);
    if (copy_dx) copy<T>(dx, row_of(buffer[0], columns), columns, 1);
    dx.data += dx.row_stride;
    dy.data += dy.row_stride;
    x.data += x.row_stride;
  }
  if constexpr (Row::numbers == 3) {
    for (auto& lane : sum[1]) {
      for (int64_t j = 0; j < padded; ++j) {
        lane[j] = Row::Function::finished(lane[j], number[1][j]);
      }
    }
  }
  for (int k = 0; k < parameters; ++k) {
    for (int lane = 1; lane < kRowLanes; ++lane) {
      for (int64_t j = 0; j < padded; ++j) sum[k][0][j] += sum[k][lane][j];
    }
    memcpy(static_cast<Real*>(m.partials[k]) + place, sum[k][0],
           static_cast<size_t>(columns) * sizeof(Real));
  }
}

template <class Precision>
void add_partial_sums(const PartialSums& m, int64_t column, int64_t columns) {
  using Real = typename Precision::Real;
  auto* out = reinterpret_cast<StorageOf<Precision>*>(m.sums) + column;
  for (int64_t start = 0; start < columns; start += kVector) {
    const int64_t width = columns - start < kVector ? columns - start : kVector;
    Real sum[kBlockLanes][kVector] = {};
    for (int64_t block = 0; block < m.blocks; ++block) {
      const Real* __restrict row =
          static_cast<const Real*>(m.partial) + block * m.columns + column + start;
      Real* __restrict lane = sum[block % kBlockLanes];
      for (int64_t j = 0; j < width; ++j) lane[j] += row[j];
    }
    // The lanes beyond are zeros, and no sum is -0.
    const int64_t lanes = m.blocks < kBlockLanes ? m.blocks : kBlockLanes;
    for (int64_t lane = 1; lane < lanes; ++lane) {
      for (int64_t j = 0; j < kVector; ++j) sum[0][j] += sum[lane][j];
    }
    for (int64_t j = 0; j < width; ++j) out[start + j] = Storage<Precision>::store(sum[0][j]);
  }
}

template <class Function, class Precision, bool takes_bias>
constexpr Maps maps_of() {
  if constexpr (takes_bias) return {map<Function, Precision>, map<AddBias<Function>, Precision>};
  return {map<Function, Precision>, nullptr};
}

template <class Gate, class Precision>
constexpr Loops loops_of() {
#define GELU_KERNELS_MAPS(name, Function, takes_bias) \
  maps_of<Function<Gate, Precision>, Precision, takes_bias>(),
  return {{GELU_KERNELS_FOR_EACH_PASS(GELU_KERNELS_MAPS)},
          evaluate<Gate, Precision, true, Derivative::kNone>,
          evaluate<Gate, Precision, false, Derivative::kToMultiply>,
          evaluate<Gate, Precision, true, Derivative::kToMultiply>,
          evaluate<Gate, Precision, true, Derivative::kToEncode>,
          column_sums<BiasRow<Gate, Precision>, Precision>,
          column_sums<CdfRow<Gate, Precision>, Precision>,
          add_partial_sums<Precision>};
#undef GELU_KERNELS_MAPS
}

}  // namespace

// Indexed by Gate, then Dtype.
extern const Loops GELU_KERNELS_CAPABILITY[][4];
const Loops GELU_KERNELS_CAPABILITY[][4] = {
#define GELU_KERNELS_LOOPS(name, Type, ...) \
  {loops_of<Type, fp64>(), loops_of<Type, fp32>(), loops_of<Type, fp16>(), loops_of<Type, bf16>()},
    GELU_KERNELS_FOR_EACH_GATE(GELU_KERNELS_LOOPS)
#undef GELU_KERNELS_LOOPS
};

}  // namespace gelu_kernels::cpu

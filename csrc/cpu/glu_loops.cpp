// Compiled once per instruction set; the rules of loops.cpp hold here too.
#include "csrc/cpu/glu_loops.h"

#include <utility>

#include "csrc/cpu/buffer.h"
#include "csrc/cpu/chunks.h"
#include "csrc/gates/pointwise.h"
#include "csrc/gates/storage.h"

namespace gelu_kernels::cpu {
namespace {

static_assert(kGluLanes % kVector == 0);

// The hot loops. n is a multiple of kVector, and at most kGluLanes.
template <class Function, class Precision, class T, class Real>
void run(const GluNumbers<Real>& numbers, Real*, int64_t n, T* __restrict y, const T* __restrict x,
         const T* __restrict up) {
  const auto loop = [&numbers]<class Stored>(Stored, int64_t n, auto* __restrict y,
                                             const auto* __restrict x, const auto* __restrict up) {
    using S = Storage<Stored>;
#pragma GCC unroll kUnroll
    for (int64_t j = 0; j < n; ++j) {
      y[j] = S::store(Function::apply(numbers, S::load(x[j]), S::load(up[j])));
    }
  };
  in_chunks<Precision, kVector>(n, loop, y, x, up);
}
template <class Function, class Precision, class T, class Real>
void run(const GluNumbers<Real>& numbers, Real* __restrict lanes, int64_t n, T* __restrict dx,
         T* __restrict dup, const T* __restrict dy, const T* __restrict x, const T* __restrict up) {
  const auto loop = [&numbers]<class Stored>(Stored, int64_t n, Real* __restrict lanes,
                                             auto* __restrict dx, auto* __restrict dup,
                                             const auto* __restrict dy, const auto* __restrict x,
                                             const auto* __restrict up) {
    using S = Storage<Stored>;
#pragma GCC unroll kUnroll
    for (int64_t j = 0; j < n; ++j) {
      const auto gradients =
          Function::apply(numbers, S::load(dy[j]), S::load(x[j]), S::load(up[j]));
      dx[j] = S::store(gradients.dx);
      dup[j] = S::store(gradients.dup);
      lanes[j] += gradients.weight_term;
    }
  };
  in_chunks<Precision, kVector>(n, loop, lanes, dx, dup, dy, x, up);
}

template <class Real>
Real sum_of(Real* lanes) {
  for (int count = kGluLanes / 2; count > 0; count /= 2) {
    for (int i = 0; i < count; ++i) lanes[i] = lanes[2 * i] + lanes[2 * i + 1];
  }
  return lanes[0];
}

template <class Function, class Precision, size_t... k>
void glu_row(const GluRows& m, int64_t row, int64_t column, int64_t columns,
             std::index_sequence<k...>) {
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;
  GluNumbers<Real> numbers{static_cast<Real>(m.limit), static_cast<Real>(m.up_offset), 1};
  if (m.weight) {
    numbers.weight = Storage<Precision>::load(reinterpret_cast<const T*>(m.weight)[row]);
  }
  Real lanes[kGluLanes] = {};
  T buffer[sizeof...(k)][kGluLanes];
  for (const int64_t end = column + columns; column < end; column += kGluLanes) {
    const int64_t width = end - column < kGluLanes ? end - column : int64_t{kGluLanes};
    const int64_t padded = round_up(width);
    const Matrix tiles[] = {tile_at(m.operands[k], row, column)...};
    bool in_place[sizeof...(k)];
    T* data[sizeof...(k)];
    for (size_t i = 0; i < sizeof...(k); ++i) {
      in_place[i] = padded == width && tiles[i].column_stride == int64_t{sizeof(T)};
      data[i] = in_place[i] ? reinterpret_cast<T*>(tiles[i].data) : buffer[i];
      if (in_place[i] || i < Function::outputs) continue;
      copy<T>(row_of(buffer[i], width), tiles[i], width, 1);
      for (int64_t j = width; j < padded; ++j) buffer[i][j] = 0;  // which add zeros to the lanes
    }
    run<Function, Precision>(numbers, lanes, padded, data[k]...);
    for (size_t i = 0; i < Function::outputs; ++i) {
      if (!in_place[i]) copy<T>(tiles[i], row_of(buffer[i], width), width, 1);
    }
  }
  if (m.dweight) {
    reinterpret_cast<T*>(m.dweight)[row] = Storage<Precision>::store(sum_of(lanes));
  }
}
template <class Function, class Precision>
void glu_row(const GluRows& m, int64_t row, int64_t column, int64_t columns) {
  glu_row<Function, Precision>(m, row, column, columns,
                               std::make_index_sequence<Function::outputs + Function::inputs>());
}

template <class Gate, class Precision>
constexpr GluLoops loops_of() {
  return {glu_row<GluRowsForward<Gate, Precision>, Precision>,
          glu_row<GluRowsBackward<Gate, Precision>, Precision>};
}

}  // namespace

#define GELU_KERNELS_JOIN(a, b) a##b
#define GELU_KERNELS_GLU(capability) GELU_KERNELS_JOIN(glu_, capability)

// Indexed by Gate, then Dtype.
extern const GluLoops GELU_KERNELS_GLU(GELU_KERNELS_CAPABILITY)[][4];
const GluLoops GELU_KERNELS_GLU(GELU_KERNELS_CAPABILITY)[][4] = {
#define GELU_KERNELS_LOOPS(name, Type, ...) \
  {loops_of<Type, fp64>(), loops_of<Type, fp32>(), loops_of<Type, fp16>(), loops_of<Type, bf16>()},
    GELU_KERNELS_FOR_EACH_GATE(GELU_KERNELS_LOOPS)
#undef GELU_KERNELS_LOOPS
};

}  // namespace gelu_kernels::cpu

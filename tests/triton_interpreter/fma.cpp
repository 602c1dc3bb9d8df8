// x y + z, rounded once, which NumPy does not have.
#include <cmath>
#include <cstdint>

template <class Real>
static void fma_each(int64_t n, const Real* x, const Real* y, const Real* z, Real* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = std::fma(x[i], y[i], z[i]);
}

extern "C" {
__attribute__((visibility("default"))) void fma_float32(int64_t n, const float* x, const float* y,
                                                        const float* z, float* out) {
  fma_each(n, x, y, z, out);
}
__attribute__((visibility("default"))) void fma_float64(int64_t n, const double* x, const double* y,
                                                        const double* z, double* out) {
  fma_each(n, x, y, z, out);
}
}

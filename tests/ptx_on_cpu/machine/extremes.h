// The least and the greatest number. A float -0 is less than +0; a number wins over NaN, unless the
// function says otherwise.
#pragma once

#include <algorithm>
#include <type_traits>

#include "numbers.h"

namespace ptx {

template <class T>
T minimum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return std::min(a, b);
  } else {
    const T least = a < b   ? a
                    : a > b ? b
                            : std::bit_cast<T>(static_cast<Bits<T>>(bits(a) | bits(b)));
    return is_nan(a) ? canonical(b) : is_nan(b) ? a : least;
  }
}
template <class T>
T maximum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return std::max(a, b);
  } else {
    const T most = a > b   ? a
                   : a < b ? b
                           : std::bit_cast<T>(static_cast<Bits<T>>(bits(a) & bits(b)));
    return is_nan(a) ? canonical(b) : is_nan(b) ? a : most;
  }
}
template <class T>
T minimum_or_nan(T a, T b) {
  return is_nan(a) || is_nan(b) ? kNaN<T> : minimum(a, b);
}
template <class T>
T maximum_or_nan(T a, T b) {
  return is_nan(a) || is_nan(b) ? kNaN<T> : maximum(a, b);
}

}  // namespace ptx

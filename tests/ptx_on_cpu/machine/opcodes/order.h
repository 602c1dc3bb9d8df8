// The order of numbers: extremes and setp. A float -0 is less than +0 as an extreme; a number wins
// over NaN, unless the function says otherwise, and a comparison with NaN is false.
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>

#include "numbers.h"
#include "tables.h"
#include "team.h"

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

template <class T>
void add_comparisons(Table& table, const std::string& type) {
  table["setp.eq." + type] = lanes<[](T a, T b) { return a == b; }>();
  table["setp.ne." + type] = lanes<[](T a, T b) { return a < b || b < a; }>();
  table["setp.lt." + type] = lanes<[](T a, T b) { return a < b; }>();
  table["setp.le." + type] = lanes<[](T a, T b) { return a <= b; }>();
  table["setp.gt." + type] = lanes<[](T a, T b) { return b < a; }>();
  table["setp.ge." + type] = lanes<[](T a, T b) { return a >= b; }>();
}

}  // namespace ptx

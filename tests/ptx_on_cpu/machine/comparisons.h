// setp for numbers that are ordered. A comparison with NaN is false.
#pragma once

#include <string>

#include "tables.h"
#include "team.h"

namespace ptx {

template <class T>
bool equal(T a, T b) {
  return a == b;
}
template <class T>
bool unequal(T a, T b) {
  return a < b || a > b;
}
template <class T>
bool less(T a, T b) {
  return a < b;
}
template <class T>
bool less_or_equal(T a, T b) {
  return a <= b;
}
template <class T>
bool greater(T a, T b) {
  return a > b;
}
template <class T>
bool greater_or_equal(T a, T b) {
  return a >= b;
}

template <class T>
void add_ordered_comparisons(Table& table, const std::string& type) {
  table["setp.eq." + type] = Lanes<equal<T>>::operation();
  table["setp.ne." + type] = Lanes<unequal<T>>::operation();
  table["setp.lt." + type] = Lanes<less<T>>::operation();
  table["setp.le." + type] = Lanes<less_or_equal<T>>::operation();
  table["setp.gt." + type] = Lanes<greater<T>>::operation();
  table["setp.ge." + type] = Lanes<greater_or_equal<T>>::operation();
}

}  // namespace ptx

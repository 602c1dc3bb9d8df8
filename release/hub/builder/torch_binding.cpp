// Replaces csrc/python/module.cpp, as the Hub's builder links nothing of torch that needs Python.
// Functions that are bound there become operators here.
#include <ATen/core/Dict.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "csrc/ops/build_info.h"
#include "csrc/ops/check.h"

namespace {

std::vector<std::tuple<std::string, std::optional<std::string>, std::optional<std::string>>>
gates() {
  std::vector<std::tuple<std::string, std::optional<std::string>, std::optional<std::string>>>
      result;
  for (const auto& [gate, name, approximate, alias] : gelu_kernels::gates()) {
    result.emplace_back(name, approximate, alias);
  }
  return result;
}

c10::Dict<std::string, std::string> build_info() {
  c10::Dict<std::string, std::string> result;
  for (const auto& [name, value] : gelu_kernels::build_info()) result.insert(name, value);
  return result;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(gelu_kernels, m) {
  m.def("gates", gates);
  m.def("build_info", build_info);
}

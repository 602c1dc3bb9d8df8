#pragma once

#include <c10/macros/Export.h>

#include <string>
#include <utility>
#include <vector>

namespace gelu_kernels {

// Compiler, versions and instruction sets, as pairs of a name and a value.
C10_EXPORT std::vector<std::pair<std::string, std::string>> build_info();

}  // namespace gelu_kernels

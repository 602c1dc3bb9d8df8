// The opcodes that the machine knows, by their names in PTX.
#pragma once

#include <map>
#include <string>

#include "program.h"

namespace ptx {

using Table = std::map<std::string, Operation, std::less<>>;

void add_integer_operations(Table& table);
void add_field_operations(Table& table);
void add_float_operations(Table& table);
void add_special_functions(Table& table);
void add_conversions(Table& table);
void add_memory_operations(Table& table);
void add_copies(Table& table);
void add_matrix_operations(Table& table);
void add_warp_operations(Table& table);

}  // namespace ptx

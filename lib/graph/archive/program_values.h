// Values of exported programs as LibTorch has them: constants, codes of types, names. Used by
// forward_of_program.h. Pure.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>

#include "storage/exported/program.h"

namespace dslaunch::graph {

// PyTorch's scalar type of the schema's CODE. Throws Error{kInput} if it is not known.
[[nodiscard]] at::ScalarType scalar_type_of_code(int64_t code);

// Nothing where VALUE is made by the graph. Throws Error{kInput} for a code that is not known.
[[nodiscard]] std::optional<c10::IValue> constant_of(const storage::ExportedValue& value);

// A constant, in the kind that PARAMETER has: 1 is 1.0 for a float, and [1, 1] for an `int[2]`.
[[nodiscard]] c10::IValue constant_as(const c10::IValue& value, const c10::Argument& parameter);

// TYPE is of KIND, or optional and of KIND.
[[nodiscard]] bool wants(const c10::TypePtr& type, c10::TypeKind kind);
// The element type of a list type, or of an optional list type; null: neither.
[[nodiscard]] c10::TypePtr element_of(const c10::TypePtr& type);

// The name of the value of the graph that VALUE is; empty: a constant, or several values.
[[nodiscard]] std::string name_of(const storage::ExportedValue& value);

}  // namespace dslaunch::graph

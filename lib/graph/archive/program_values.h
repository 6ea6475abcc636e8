// Finds LibTorch's counterparts of the constants, type codes and operators in exported programs.
// Also converts operators that depend on train mode, and operators that differ from the TorchScript
// operator with the same name. Used by forward_of_program.h. Pure.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/frontend/sugared_value.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/nodes/names.h"
#include "storage/exported/program.h"

namespace dslaunch::graph {

// Returns PyTorch's scalar type for the schema's CODE. Throws Error{kInput} if it is not known.
[[nodiscard]] at::ScalarType scalar_type_of_code(int64_t code);

// Returns VALUE as a constant, or nothing if it is a value of the graph. Throws Error{kInput} for
// an unknown code.
[[nodiscard]] std::optional<IValue> constant_of(const storage::ExportedValue& value);

// Returns VALUE converted to the type of PARAMETER: 1 becomes 1.0 for a float, and [1, 1] for an
// `int[2]`.
[[nodiscard]] IValue constant_as(const IValue& value, const c10::Argument& parameter);

// Returns true if TYPE is of KIND, or an optional of KIND.
[[nodiscard]] bool wants(const c10::TypePtr& type, c10::TypeKind kind);
// Returns the element type of a list type, or of an optional list type; null for other types.
[[nodiscard]] c10::TypePtr element_of(const c10::TypePtr& type);

// Returns the name of the graph's value that VALUE refers to; empty if VALUE is a constant or
// several values.
[[nodiscard]] std::string name_of(const storage::ExportedValue& value);

// An operator of LibTorch.
struct Operation {
    std::string name;  // "aten::add"
    const c10::FunctionSchema* schema = nullptr;
};

// Returns LibTorch's operator for a name such as "aten.add.Tensor"; nothing if there is no such
// operator.
[[nodiscard]] std::optional<Operation> torch_operation(std::string_view name);

// Explains, for messages, why VALUES are not arguments of OPERATION.
[[nodiscard]] std::string why_no_match(const Operation& operation,
                                       const std::vector<Value*>& values);

// Returns the TorchScript operator that does the work of TARGET. TARGET is an operator, such as
// "_operator.mul", with which Python computed sizes and flags during the export. Returns null for
// any other TARGET.
[[nodiscard]] const char* python_operator(std::string_view target);

// Returns the TorchScript operator that does the work of TARGET, if TARGET returns a size; null for
// any other TARGET.
[[nodiscard]] const char* size_operator(std::string_view target);

// Returns true if TARGET is an operator that checks what the exporter assumed about sizes and
// dtypes. The graph does not need such checks: if an input breaks the assumption, another operator
// fails with an explanation.
[[nodiscard]] bool is_assertion(std::string_view target);

// Puts the tensor first if POSITIONAL begins with a number and a tensor, as in 1 - x, and
// multiplies the tensor by the alpha in NAMED. Returns the operator for the swapped arguments:
// `rsub` in place of `sub`, otherwise NAME. New nodes are added at GRAPH's insert point.
[[nodiscard]] std::string put_tensor_first(Graph& graph, const std::string& name,
                                           std::vector<NamedValue>& positional,
                                           std::vector<NamedValue>& named);

// Returns the name of the argument that tells OPERATION whether the model trains; null if OPERATION
// has no such argument.
[[nodiscard]] const char* train_flag(std::string_view operation);

// Returns the name of OPERATION's dropout probability if OPERATION has no argument for train mode;
// the probability is then set to zero in evaluation. Returns null for other operations.
[[nodiscard]] const char* train_probability(std::string_view operation);

}  // namespace dslaunch::graph

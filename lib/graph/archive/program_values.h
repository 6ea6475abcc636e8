// Values and operators of exported programs as LibTorch has them: constants, codes of types, names,
// and operators that differ from TorchScript's of the same name, or that know whether the model
// trains. Used by forward_of_program.h. Pure.
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

// Returns nothing if the graph makes VALUE. Throws Error{kInput} for a code that is not known.
[[nodiscard]] std::optional<IValue> constant_of(const storage::ExportedValue& value);

// Returns VALUE in the kind that PARAMETER has: 1 is 1.0 for a float, and [1, 1] for an `int[2]`.
[[nodiscard]] IValue constant_as(const IValue& value, const c10::Argument& parameter);

// Returns true if TYPE is of KIND, or optional and of KIND.
[[nodiscard]] bool wants(const c10::TypePtr& type, c10::TypeKind kind);
// Returns the element type of a list type, or of an optional list type; null: neither.
[[nodiscard]] c10::TypePtr element_of(const c10::TypePtr& type);

// Returns the name of the value of the graph that VALUE is; empty: a constant, or several values.
[[nodiscard]] std::string name_of(const storage::ExportedValue& value);

struct Operation {
    std::string name;  // "aten::add"
    const c10::FunctionSchema* schema = nullptr;
};

// Returns LibTorch's operator of the name "aten.add.Tensor"; nothing if it has no such operator.
[[nodiscard]] std::optional<Operation> torch_operation(std::string_view name);

// Says why VALUES are not arguments of OPERATION, for messages.
[[nodiscard]] std::string why_no_match(const Operation& operation,
                                       const std::vector<Value*>& values);

// Returns the TorchScript operator for one on sizes and flags, as "_operator.mul", which Python
// computed during the export. Null: TARGET is not such an operator.
[[nodiscard]] const char* python_operator(std::string_view target);

// Returns the TorchScript operator by which TARGET asks for a size; null: it asks for none.
[[nodiscard]] const char* size_operator(std::string_view target);

// Returns true if TARGET asserts what the exporter assumed about sizes and dtypes. It holds for any
// input that the operators themselves accept, or they say why not.
[[nodiscard]] bool is_assertion(std::string_view target);

// If POSITIONAL begins with a number and a tensor, as in 1 - x, puts the tensor first and
// multiplies it by NAMED's alpha. Returns the operation of that order, NAME's or another's. Nodes
// go to GRAPH's insert point.
[[nodiscard]] std::string put_tensor_first(Graph& graph, const std::string& name,
                                           std::vector<NamedValue>& positional,
                                           std::vector<NamedValue>& named);

// Returns the flag by which an operator knows that the model trains; null: it has none.
[[nodiscard]] const char* train_flag(std::string_view operation);

// Returns a dropout probability that is zero in evaluation, without a flag beside it; null: none.
[[nodiscard]] const char* train_probability(std::string_view operation);

}  // namespace dslaunch::graph

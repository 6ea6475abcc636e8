// Operators of exported programs that are no operators of TorchScript's by the same name, or that
// know whether the model trains. Used by forward_of_program.h. Pure.
#pragma once

#include <ATen/core/function_schema.h>

#include <torch/csrc/jit/frontend/sugared_value.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::graph {

struct Operation {
    std::string name;  // "aten::add"
    const c10::FunctionSchema* schema = nullptr;
};

// LibTorch's operator of the name "aten.add.Tensor"; nothing: it has none.
[[nodiscard]] std::optional<Operation> torch_operation(std::string_view name);

// Why VALUES are no arguments of OPERATION, for messages.
[[nodiscard]] std::string why_no_match(const Operation& operation,
                                       const std::vector<torch::jit::Value*>& values);

// The TorchScript operator of one on sizes and flags, which Python computed while the model was
// exported, "_operator.mul"; null: TARGET is none of them.
[[nodiscard]] const char* python_operator(std::string_view target);

// The TorchScript operator by which TARGET asks for a size; null: it asks for none.
[[nodiscard]] const char* size_operator(std::string_view target);

// What the exporter took for granted about sizes and dtypes. It holds for any input that the
// operators themselves accept, or they say why not.
[[nodiscard]] bool is_assertion(std::string_view target);

// Where POSITIONAL begins with a number and a tensor, as in 1 - x, puts the tensor first, and
// multiplies it by NAMED's alpha. Returns the operation of that order, NAME's or another's. Nodes
// go to GRAPH's insert point.
[[nodiscard]] std::string put_tensor_first(torch::jit::Graph& graph, const std::string& name,
                                           std::vector<torch::jit::NamedValue>& positional,
                                           std::vector<torch::jit::NamedValue>& named);

// The flag by which an operator knows that the model trains; null: it has none.
[[nodiscard]] const char* train_flag(std::string_view operation);

// A dropout probability that is zero in evaluation, without a flag beside it; null: none.
[[nodiscard]] const char* train_probability(std::string_view operation);

}  // namespace dslaunch::graph

// Tells the operators that a model may use. A model is data: its operators compute with tensors,
// numbers and texts, and do not touch files, other processes, devices' streams or the process
// itself. Data path: archive -> model_operators.h -> [here]. Pure.
#pragma once

#include <ATen/core/function_schema.h>

#include <string>
#include <string_view>

namespace dslaunch::graph {

// Says why an operator with SCHEMA is refused, "it takes a text `filename`"; empty: it is allowed.
// The rule goes by the namespace and by the types of arguments and results; a list names what it
// would wrongly allow. An operator in a namespace that LibTorch lacks comes from a library that the
// user named, and only its types count.
[[nodiscard]] std::string why_refused(const c10::FunctionSchema& schema);

// Says the same of a node of TorchScript's own, "prim::If".
[[nodiscard]] std::string why_node_refused(std::string_view kind);

// Says the same of a class in C++, "__torch__.torch.classes.quantized.LinearPackedParamsBase".
[[nodiscard]] std::string why_class_refused(std::string_view name);

// Returns true if NAME is a class in C++.
[[nodiscard]] bool is_class_in_cpp(std::string_view name);

}  // namespace dslaunch::graph

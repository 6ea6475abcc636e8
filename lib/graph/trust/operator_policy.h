// Decides which operators a model may use. A model is data: its operators compute with tensors,
// numbers and texts, and do not touch files, other processes, devices' streams or the process
// itself. Data path: archive -> model_operators.h -> [here]. Pure.
#pragma once

#include <ATen/core/function_schema.h>

#include <string>
#include <string_view>

namespace dslaunch::graph {

// Explains why an operator with SCHEMA is refused, such as "it takes a text `filename`"; empty if
// it is allowed. A rule decides by the operator's namespace and the types of its arguments and
// results. In addition, a list names operators that this rule would wrongly allow. An operator in a
// namespace that LibTorch does not have comes from a library that the user named, and only its
// types are checked.
[[nodiscard]] std::string why_refused(const c10::FunctionSchema& schema);

// Explains why one of TorchScript's own nodes, such as "prim::If", is refused; empty if it is
// allowed.
[[nodiscard]] std::string why_node_refused(std::string_view kind);

// Explains why a C++ class is refused; empty if it is allowed. NAME is, for example,
// "__torch__.torch.classes.quantized.LinearPackedParamsBase".
[[nodiscard]] std::string why_class_refused(std::string_view name);

// Returns true if NAME is the name of a C++ class.
[[nodiscard]] bool is_class_in_cpp(std::string_view name);

}  // namespace dslaunch::graph

// Dicts that forward makes and fills on its way, as torchvision's backbones do. Such a dict lives
// from its first value to its last reader, and no cut may be in between; the values themselves may
// cross one. A pass of lower.h. Any thread.
#pragma once

#include <optional>
#include <string>

namespace torch::jit {
struct Graph;
struct Value;
}  // namespace torch::jit

namespace dslaunch::graph {

// Replaces reads of dicts by the values that were put there, where GRAPH makes the dict at its top
// level and does no more than to set and read values by constant names; a dict that leaves GRAPH is
// made at its end.
void fold_dicts(torch::jit::Graph& graph);

// The text that VALUE is as a constant of its graph; nothing: it is none.
[[nodiscard]] std::optional<std::string> constant_text(const torch::jit::Value* value);

}  // namespace dslaunch::graph

// LibTorch's exceptions are a page long: what went wrong and where in the model's source, in one
// line.
#pragma once

#include <string>

namespace dslaunch::graph {

[[nodiscard]] std::string torch_reason(const std::string& text);

}  // namespace dslaunch::graph

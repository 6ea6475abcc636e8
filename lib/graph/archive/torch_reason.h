// The reason in a LibTorch exception, whose text is a page long, and the place in the model's
// source, in one line.
#pragma once

#include <string>

namespace dslaunch::graph {

[[nodiscard]] std::string torch_reason(const std::string& text);

}  // namespace dslaunch::graph

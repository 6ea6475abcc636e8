// The reason in an error text of LibTorch, which is a page long: advice, two tracebacks of the
// model's source, frames of C++. Knows the texts, not LibTorch.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace dslaunch {

// Returns one printable line: the first sentence, and the model's own line that it is about, as far
// as TEXT says: "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5), at m.py:11: self.fc(h)".
[[nodiscard]] std::string torch_reason(std::string_view text);

// The same of ERROR; one of our own is returned as it is. What is left out goes to the log at level
// debug.
[[nodiscard]] std::string torch_reason(const std::exception& error);

}  // namespace dslaunch

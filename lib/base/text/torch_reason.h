// Finds the reason in LibTorch's error text, which is a page long: advice, two tracebacks of the
// model's source, frames of C++. Knows the texts, not LibTorch.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace dslaunch {

// Returns one printable line: the first sentence and the line of the model that it is about, if
// TEXT says so: "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5), at m.py:11: self.fc(h)".
[[nodiscard]] std::string torch_reason(std::string_view text);

// Does the same for ERROR; returns the text of our own Error unchanged. Logs what it leaves out at
// level debug.
[[nodiscard]] std::string torch_reason(const std::exception& error);

}  // namespace dslaunch

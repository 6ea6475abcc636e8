// Finds the reason in an error text of LibTorch. Such a text is a page long: advice, two tracebacks
// of the model's source, and C++ stack frames. Uses only the texts and does not call LibTorch.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace dslaunch {

// Returns one printable line: the first sentence of the reason and, if TEXT names it, the line of
// the model where it happened: "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5), at
// m.py:11: self.fc(h)".
[[nodiscard]] std::string torch_reason(std::string_view text);

// Returns the reason in the text of ERROR, in the same form as the function above. Returns the text
// of dslaunch's own Error unchanged. If a part of the text is not returned, logs the whole text at
// level debug.
[[nodiscard]] std::string torch_reason(const std::exception& error);

}  // namespace dslaunch

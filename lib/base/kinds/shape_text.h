// A tensor's shape as a text for messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace dslaunch {

// Returns "[768, 3072]"; "[]" for a scalar.
[[nodiscard]] std::string shape_text(std::span<const int64_t> sizes);

}  // namespace dslaunch

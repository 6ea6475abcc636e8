// Where the whole characters of a text end that comes in parts. Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace dslaunch {

// Returns the length of TEXT without the incomplete character at its end, if there is one. A
// character is incomplete if further bytes could make it valid UTF-8.
[[nodiscard]] size_t whole_characters(std::string_view text);

}  // namespace dslaunch

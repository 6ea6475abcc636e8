// Texts as numbers, as Python's int() and float() read them.
#pragma once

#include "text/chat_template/values/value.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace dslaunch::text::jinja {

// int(TEXT, BASE); nothing for a text that is no number. Throws Fault for one over 64 bits whose
// base is not ten.
[[nodiscard]] std::optional<Value> integer_of_text(std::string_view text, int64_t base);
// float(TEXT).
[[nodiscard]] std::optional<double> float_of_text(std::string_view text);

}  // namespace dslaunch::text::jinja

// Values as text: Python's str() and repr(), with True, None, quotes and floats as it writes them.
#pragma once

#include "text/chat_template/values/value.h"

#include <string>
#include <string_view>

namespace dslaunch::text::jinja {

// str(): what `{{ value }}` prints; nothing for an undefined value. Throws Fault over a limit.
void append_str(Meter& meter, std::string& out, const Value& value);
[[nodiscard]] std::string str_of(Meter& meter, const Value& value);
void append_repr(Meter& meter, std::string& out, const Value& value);

// "1.0", "1e+16", "inf": Python's repr of a float.
[[nodiscard]] std::string float_repr(double number);
// The text in quotes, as Python's repr writes it.
[[nodiscard]] std::string quoted_repr(std::string_view text);

}  // namespace dslaunch::text::jinja

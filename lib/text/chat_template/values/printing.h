// Values as text, as Python's str() and repr() write them, including True, None, quotes and floats.
#pragma once

#include <string>
#include <string_view>

#include "text/chat_template/values/values.h"

namespace dslaunch::text::jinja {

// Append or return the text that `{{ value }}` prints: Python's str(), or nothing for an undefined
// value. Throw Fault if a limit is exceeded, or if only Python knows the text of the value.
void append_str(Meter& meter, std::string& out, const Value& value);
[[nodiscard]] std::string str_of(Meter& meter, const Value& value);

// Returns Python's repr of a float, such as "1.0", "1e+16" or "inf".
[[nodiscard]] std::string float_repr(double number);

}  // namespace dslaunch::text::jinja

// Values as text, as Python's str() and repr() write them, including True, None, quotes and floats.
#pragma once

#include <string>
#include <string_view>

#include "text/chat_template/values/values.h"

namespace dslaunch::text::jinja {

// Appends the text that `{{ value }}` prints, which is Python's str(); nothing for an undefined
// value. Throws Fault if a limit is exceeded, and for values whose text only Python knows.
void append_str(Meter& meter, std::string& out, const Value& value);
[[nodiscard]] std::string str_of(Meter& meter, const Value& value);

// Returns Python's repr of a float, such as "1.0", "1e+16" or "inf".
[[nodiscard]] std::string float_repr(double number);

}  // namespace dslaunch::text::jinja

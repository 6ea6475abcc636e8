// Values as text: Python's str() and repr(), with True, None, quotes and floats as it writes them.
#pragma once

#include <string>
#include <string_view>

#include "text/chat_template/values/value.h"

namespace dslaunch::text::jinja {

// Appends the text that `{{ value }}` prints, str(); nothing for an undefined value. Throws Fault
// over a limit, and for values whose text only Python knows.
void append_str(Meter& meter, std::string& out, const Value& value);
[[nodiscard]] std::string str_of(Meter& meter, const Value& value);

// Returns "1.0", "1e+16", "inf": Python's repr of a float.
[[nodiscard]] std::string float_repr(double number);

}  // namespace dslaunch::text::jinja

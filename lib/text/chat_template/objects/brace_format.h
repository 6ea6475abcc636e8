// `'{} of {name:>5}'.format(…)`: Python's str.format.
#pragma once

#include "text/chat_template/objects/runtime.h"

#include <string>
#include <string_view>

namespace dslaunch::text::jinja {

// Throws Fault where Python raises, and for attributes and items of a field, as `{0.name}`.
[[nodiscard]] std::string brace_format(Runtime& runtime, std::string_view format,
                                       const Arguments& arguments);

}  // namespace dslaunch::text::jinja

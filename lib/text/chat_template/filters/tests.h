// Jinja2's tests, what stands behind `is`.
#pragma once

#include "text/chat_template/objects/runtime.h"

#include <string_view>

namespace dslaunch::text::jinja {

using TestFunction = bool (*)(Runtime& runtime, const Value& input, const Arguments& arguments);

// nullptr: there is none of that NAME.
[[nodiscard]] TestFunction find_test(std::string_view name);
[[nodiscard]] bool is_test_name(std::string_view name);

}  // namespace dslaunch::text::jinja

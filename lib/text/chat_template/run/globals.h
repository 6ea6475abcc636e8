// The functions that every template has: Jinja2's `range`, `dict`, `namespace`, `cycler` and
// `joiner`, and transformers' `raise_exception` and `strftime_now`.
#pragma once

#include "text/chat_template/objects/runtime.h"

#include <span>
#include <string_view>

namespace dslaunch::text::jinja {

using GlobalFunction = Value (*)(Runtime& runtime, Arguments& arguments);
struct Global {
    std::string_view name;
    GlobalFunction run;
};

[[nodiscard]] std::span<const Global> global_functions();

// Sets a field of a namespace. Throws Fault for a name that begins with `_`, as transformers does.
void set_field(Namespace& fields, const std::string& name, Value value);

}  // namespace dslaunch::text::jinja

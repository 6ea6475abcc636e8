// Jinja2's filters, and transformers' `tojson`.
#pragma once

#include "text/chat_template/objects/runtime.h"

#include <span>
#include <string_view>

namespace dslaunch::text::jinja {

using FilterFunction = Value (*)(Runtime& runtime, const Value& input, const Arguments& arguments);
struct Filter {
    std::string_view name;
    FilterFunction run;
};

// nullptr: there is none of that NAME. Those of Jinja2 that are not supported say so when they run.
[[nodiscard]] FilterFunction find_filter(std::string_view name);
[[nodiscard]] bool is_filter_name(std::string_view name);

// Those of text_filters.cpp and list_filters.cpp.
[[nodiscard]] std::span<const Filter> text_filters();
[[nodiscard]] std::span<const Filter> list_filters();
[[nodiscard]] std::span<const Filter> choice_filters();

}  // namespace dslaunch::text::jinja

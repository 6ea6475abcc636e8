// The methods of Python's str, list, tuple, dict and range, as far as a template may call them.
#pragma once

#include "text/chat_template/objects/runtime.h"

#include <span>
#include <string_view>

namespace dslaunch::text::jinja {

using MethodFunction = Value (*)(Runtime& runtime, const Value& self, const Arguments& arguments);
struct Method {
    std::string_view name;
    MethodFunction run;
};

// The method NAME of SELF's kind, nullptr when it has none.
[[nodiscard]] const Method* find_method(const Value& self, std::string_view name);
// True when SELF's kind has a method NAME that the sandbox hides, as list.append.
[[nodiscard]] bool is_hidden_method(const Value& self, std::string_view name);

// Those of text_methods.cpp and text_classes.cpp.
[[nodiscard]] std::span<const Method> text_methods();
[[nodiscard]] std::span<const Method> text_class_methods();

// As the methods of the same names do. REQUIRES: SELF is a text.
[[nodiscard]] Values split_lines(Meter& meter, std::string_view text, bool keeps_ends);
[[nodiscard]] std::string replaced(Meter& meter, std::string_view text, std::string_view old,
                                   std::string_view by, int64_t count);
[[nodiscard]] std::string centered(Meter& meter, const Text& text, int64_t width,
                                   std::string_view fill);

}  // namespace dslaunch::text::jinja

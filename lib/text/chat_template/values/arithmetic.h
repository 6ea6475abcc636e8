// The operators of expressions on numbers, texts and lists, as Python's. All throw Fault where
// Python raises, and for whole numbers over 64 bits but as the sum, difference or product of
// smaller ones.
#pragma once

#include "text/chat_template/values/value.h"

namespace dslaunch::text::jinja {

enum class Operator : uint8_t {
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kFloorDivide,
    kModulo,
    kPower
};

[[nodiscard]] const char* operator_text(Operator op);
[[nodiscard]] Value apply_operator(Meter& meter, Operator op, const Value& a, const Value& b);
[[nodiscard]] Value negated(const Value& value);
[[nodiscard]] Value kept_sign(const Value& value);  // +value

// `<`, `>`, `&` and quotes as HTML's references.
[[nodiscard]] std::string html_escaped(std::string_view text);

}  // namespace dslaunch::text::jinja

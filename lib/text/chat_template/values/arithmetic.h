// The operators of expressions on numbers, texts and lists, as Python's, and parts of texts and
// lists by its indices. All throw Fault where Python raises, and for whole numbers over 64 bits.
#pragma once

#include <string_view>

#include "text/chat_template/values/value.h"

namespace dslaunch::text::jinja {

enum class Operator : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo };

// Returns A OP B. REQUIRES: not a text on the left of kModulo.
[[nodiscard]] Value apply_operator(Meter& meter, Operator op, const Value& a, const Value& b);
[[nodiscard]] Value negated(const Value& value);

// Returns `value[start:stop:step]`; each may be none.
[[nodiscard]] Value slice_of(Meter& meter, const Value& value, const Value& start,
                             const Value& stop, const Value& step);
// Returns the element at INDEX, undefined when there is none.
[[nodiscard]] Value element_of(Meter& meter, const Value& value, int64_t index);

}  // namespace dslaunch::text::jinja

// Python's operators on numbers, strings and lists, and slices and elements of strings and lists.
// All throw Fault where Python raises an exception, and for whole numbers that need more than 64
// bits.
#pragma once

#include <string_view>

#include "text/chat_template/values/values.h"

namespace dslaunch::text::jinja {

// The binary operators on values; `~` and comparisons are separate.
enum class Operator : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo };

// Returns A OP B. REQUIRES: if OP is kModulo, A is not a string.
[[nodiscard]] Value apply_operator(Meter& meter, Operator op, const Value& a, const Value& b);
// Returns -VALUE.
[[nodiscard]] Value negated(const Value& value);

// Returns `value[start:stop:step]`; each of the three may be none.
[[nodiscard]] Value slice_of(Meter& meter, const Value& value, const Value& start,
                             const Value& stop, const Value& step);
// Returns the element at INDEX, or undefined if there is none.
[[nodiscard]] Value element_of(Meter& meter, const Value& value, int64_t index);

}  // namespace dslaunch::text::jinja

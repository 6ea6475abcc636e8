// Parts of texts and lists by Python's indices: from the end when negative, with a step.
#pragma once

#include "text/chat_template/values/value.h"

#include <string_view>

namespace dslaunch::text::jinja {

// `value[start:stop:step]`, each a whole number, none or undefined in the sense of not given.
// Throws Fault for what has no slices, bounds of other kinds and the step 0.
[[nodiscard]] Value slice_of(Meter& meter, const Value& value, const Value& start,
                             const Value& stop, const Value& step);

// The element of INDEX, undefined when there is none.
[[nodiscard]] Value element_of(Meter& meter, const Value& value, int64_t index);

// The part of TEXT from START to STOP, as Python's str.find(sub, start, stop) takes them, and the
// number of its first code point. FITS is false where Python finds nothing, not even "".
struct TextPart {
    std::string_view text;
    int64_t first_point = 0;
    bool fits = true;
};
[[nodiscard]] TextPart part_of(const Text& text, const Value* start, const Value* stop);

}  // namespace dslaunch::text::jinja

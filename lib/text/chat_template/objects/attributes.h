// `value.name` and `value[key]` in Jinja2's sense: each tries attributes and keys, in its order.
#pragma once

#include "text/chat_template/objects/runtime.h"

#include <string>

namespace dslaunch::text::jinja {

// `of.name`: a method or field first, then a key. Undefined when there is neither; NAME must then
// outlive the value. Throws Fault when OF is undefined.
[[nodiscard]] Value attribute_of(Runtime& runtime, const Value& of, const std::string& name);
// `of[key]`: a key or index first, then a method or field.
[[nodiscard]] Value item_of(Runtime& runtime, const Value& of, const Value& key);

// What a filter's argument `attribute` names, as "a.b.0": each part looked up as an item.
[[nodiscard]] Values path_of(Runtime& runtime, const Value& attribute);
// FALLBACK, when given, stands for what is undefined on the way.
[[nodiscard]] Value follow_path(Runtime& runtime, Value of, const Values& path,
                                const Value* fallback = nullptr);

struct Cycler : Object {
    Values items;
    size_t at = 0;
};

}  // namespace dslaunch::text::jinja

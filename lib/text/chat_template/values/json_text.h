// Converts values to JSON text, and JSON text to values. The JSON text is the same as from Python's
// json.dumps(), which transformers' `tojson` calls.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/chat_template/values/values.h"

namespace dslaunch::text::jinja {

// The arguments of json.dumps(), with the defaults of transformers' `tojson`.
struct JsonStyle {
    bool is_ascii_only = false;
    bool sorts_keys = false;
    std::optional<std::string> indent;  // for one level; not set if all is on one line
    std::string item_separator = ", ";
    std::string key_separator = ": ";
};

// Returns VALUE as JSON. Throws Fault for values that JSON cannot express, such as an undefined
// value.
[[nodiscard]] std::string json_of(Meter& meter, const JsonStyle& style, const Value& value);

// Returns the value that TEXT describes. If a key occurs twice, it keeps its first place and gets
// its last value, as in Python. Throws Fault for a mistake, half a pair of surrogates, or nesting
// that is too deep. The message names the place, as a column in bytes.
[[nodiscard]] Value value_of_json(std::string_view text);

}  // namespace dslaunch::text::jinja

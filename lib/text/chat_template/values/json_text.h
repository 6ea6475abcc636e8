// Values as JSON text, as Python's json.dumps() writes it and so transformers' `tojson`; and JSON
// text as values.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/chat_template/values/value.h"

namespace dslaunch::text::jinja {

struct JsonStyle {
    bool ascii_only = false;
    bool sort_keys = false;
    std::optional<std::string> indent;  // of one level; none: on one line
    std::string item_separator = ", ";
    std::string key_separator = ": ";
};

// Returns VALUE as JSON. Throws Fault for values that JSON lacks, as an undefined value.
[[nodiscard]] std::string json_of(Meter& meter, const JsonStyle& style, const Value& value);

// Returns the value of TEXT; the last of equal keys counts, at the place of the first, as in
// Python. Throws Fault with the fault and its place (a column in bytes): a mistake, half a pair of
// surrogates, or too deep.
[[nodiscard]] Value value_of_json(std::string_view text);

}  // namespace dslaunch::text::jinja

// Values without quotes: in JSON null, true, false and numbers, and in HJSON also text, which goes
// to the end of its line. So HJSON takes some mistakes of JSON as text, as a missing quote or
// comma. The functions here find text that nobody means. No threads.
#pragma once

#include "config/read/value.h"

#include <optional>
#include <string>
#include <string_view>

namespace dslaunch::config {

// Returns the null, bool or number that TEXT is in JSON; nothing: TEXT is no such value.
[[nodiscard]] std::optional<Value> json_literal(std::string_view text);

// Returns why TEXT, written as a number, is not a number of this machine: 1e400. Nothing: it is
// one, or it is not written as a number.
[[nodiscard]] std::optional<std::string> number_mistake(std::string_view text);

struct Mistake {
    size_t at = 0;  // a byte of the text
    std::string message;
};

// Returns why nobody means TEXT as a value. ON_NEXT_LINE: it stands below its key.
[[nodiscard]] std::optional<Mistake> quoteless_mistake(std::string_view text, bool on_next_line);

// Returns why nobody means KEY as a name.
[[nodiscard]] std::optional<Mistake> key_mistake(std::string_view key);

// Returns TEXT in backticks, a long one cut.
[[nodiscard]] std::string shown(std::string_view text);

// Returns VALUE for messages that expect a string: a string as above, else as describe().
[[nodiscard]] std::string shown(const Value& value);

}  // namespace dslaunch::config

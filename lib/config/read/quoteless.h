// Values without quotes: in JSON null, true, false and numbers, and in HJSON also text, which
// reaches to the end of its line. So HJSON takes as text what in JSON is a mistake, as a quote or a
// comma that is missing. The functions here find text that
// nobody means. No threads.
#pragma once

#include "config/read/value.h"

#include <optional>
#include <string>
#include <string_view>

namespace dslaunch::config {

// Returns null, a bool or a number that TEXT writes as JSON does; nothing: it writes no such value.
[[nodiscard]] std::optional<Value> json_literal(std::string_view text);

// Why TEXT, written as a number, is none that this machine has: 1e400. Nothing: it is one, or no
// number at all.
[[nodiscard]] std::optional<std::string> number_mistake(std::string_view text);

struct Mistake {
    size_t at = 0;  // a byte of the text
    std::string message;
};

// Why TEXT is no value that somebody meant. ON_NEXT_LINE: it stands below its key.
[[nodiscard]] std::optional<Mistake> quoteless_mistake(std::string_view text, bool on_next_line);

// Why KEY is no name that somebody meant.
[[nodiscard]] std::optional<Mistake> key_mistake(std::string_view key);

// TEXT in backticks, a long one cut.
[[nodiscard]] std::string shown(std::string_view text);

// VALUE in a message about a string that is expected: a string as above, else as describe().
[[nodiscard]] std::string shown(const Value& value);

}  // namespace dslaunch::config

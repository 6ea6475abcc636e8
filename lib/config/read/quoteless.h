// Values without quotes. In JSON these are null, true, false and numbers; in HJSON also text, which
// extends to the end of its line. HJSON therefore reads some mistakes in JSON as text, such as a
// missing quote or comma. The functions here find text that was probably not intended. No threads.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/read/value.h"

namespace dslaunch::config {

// Returns the null, bool or number that TEXT means in JSON; nothing if TEXT is not such a value.
[[nodiscard]] std::optional<Value> json_literal(std::string_view text);

// Returns the reason why the number that TEXT describes, such as 1e400, cannot be represented here.
// Returns nothing if it can be represented, or if TEXT is not written as a number.
[[nodiscard]] std::optional<std::string> number_mistake(std::string_view text);

// The place of a probable mistake in a text, and the message about it.
struct Mistake {
    size_t at = 0;  // the index of a byte in the text
    std::string message;
};

// Returns the reason why TEXT is probably not intended as a value; nothing if TEXT may be a value.
// ON_NEXT_LINE: TEXT is on a line below its key.
[[nodiscard]] std::optional<Mistake> quoteless_mistake(std::string_view text, bool on_next_line);

// Returns the reason why KEY is probably not intended as a name; nothing if KEY may be a name.
[[nodiscard]] std::optional<Mistake> key_mistake(std::string_view key);

// Returns TEXT in backticks, shortened if it is long.
[[nodiscard]] std::string shown(std::string_view text);

// Returns VALUE for messages that expect a string: a string in backticks, any other value in the
// form of describe().
[[nodiscard]] std::string shown(const Value& value);

}  // namespace dslaunch::config

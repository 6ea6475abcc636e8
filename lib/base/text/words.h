// Splits a line into words as a shell does: quotes group, but nothing is expanded.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

enum class Comments { kAreWords, kEndTheLine };  // `#` at the begin of a word

// Returns the words between blanks. Single or double quotes group and vanish. A backslash makes a
// following quote, backslash or (outside quotes) blank literal, and else stands for itself. Nothing
// when a quote is not closed.
[[nodiscard]] std::optional<std::vector<std::string>> split_words(std::string_view text,
                                                                  Comments comments);

// Returns WORD as a shell reads it back: quoted if it has more than plain characters, with
// characters that a terminal would obey escaped.
[[nodiscard]] std::string shell_word(const std::string& word);

}  // namespace dslaunch

// A line of words as a shell splits it, without being one: quotes group, nothing is expanded.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

enum class Comments { kAreWords, kEndTheLine };  // `#` at the begin of a word

// Words between blanks. Single or double quotes group and vanish; a backslash takes the quote,
// backslash or (outside quotes) blank behind it for itself and stands for itself before anything
// else. Nothing when a quote is not closed.
[[nodiscard]] std::optional<std::vector<std::string>> split_words(std::string_view text,
                                                                  Comments comments);

// Returns WORD as a shell reads it back: in quotes where it has more than plain characters, with
// what a terminal would obey escaped.
[[nodiscard]] std::string shell_word(const std::string& word);

}  // namespace dslaunch

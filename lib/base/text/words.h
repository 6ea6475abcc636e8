// Splits a line into words as a shell does: quotes group, but nothing is expanded.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

enum class Comments { kAreWords, kEndTheLine };  // `#` at the beginning of a word

// Returns the words of TEXT, which are separated by blanks. Single or double quotes group
// characters and are removed. A backslash makes a following quote, backslash or (outside quotes)
// blank literal; before any other character it is kept. Returns nothing if a quote is not closed.
[[nodiscard]] std::optional<std::vector<std::string>> split_words(std::string_view text,
                                                                  Comments comments);

// Returns WORD in the form in which a shell reads it back. It is quoted if it has more than plain
// characters. Control characters are escaped, because a terminal would obey them.
[[nodiscard]] std::string shell_word(const std::string& word);

}  // namespace dslaunch

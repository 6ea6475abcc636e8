// The names of options may be spelt with `-` or `_`: the two are alike. Used for the command lines
// of both programs. No threads: pure.
#pragma once

#include <algorithm>
#include <string>

namespace dslaunch {

// A word of a command line with the `_` in an option's name as `-`: "--top_k=a_b" -> "--top-k=a_b".
[[nodiscard]] inline std::string with_dashes(std::string word) {
    if (word.starts_with("--")) {
        const auto end = std::find(word.begin(), word.end(), '=');
        std::replace(word.begin(), end, '_', '-');
    }
    return word;
}

}  // namespace dslaunch

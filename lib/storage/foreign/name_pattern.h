// The regular expressions that name parameters in a DeepSpeed checkpoint
// (`universal_checkpoint_info`). Supports only the Python syntax that such expressions use. A match
// takes time in proportion to the pattern's length times the name's length, even for hostile files.
// Pure.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::storage {

// A pattern of names.
class NamePattern {
  public:
    // Reads TEXT: characters, `.`, `\.` and other escaped signs, `\d`, `\w`, `[abc]`, `[^0-9]`,
    // `*`, `+`, `?`, `{N}`, `^` at the beginning, `$` at the end, and alternatives `a|b` without
    // parentheses. Throws Error{kInput} that begins with WHERE if it has anything else.
    NamePattern(const std::string& where, const std::string& text);

    // Returns true if a NAME begins with the pattern, as re.match() does.
    [[nodiscard]] bool matches(std::string_view name) const;
    [[nodiscard]] const std::string& text() const { return text_; }
    // Returns the number of characters and character sets in the pattern; {N} counts as N copies.
    [[nodiscard]] size_t atoms() const;

  private:
    // A set of characters. `may_miss` and `may_repeat` say how often one of them may occur.
    struct Atom {
        std::bitset<256> allows;
        bool may_miss = false, may_repeat = false;
    };
    struct Alternative {
        std::vector<Atom> atoms;
        bool to_end = false;  // `$`
    };

    std::string text_;
    std::vector<Alternative> alternatives_;
};

}  // namespace dslaunch::storage

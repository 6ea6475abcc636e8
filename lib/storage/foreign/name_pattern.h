// The regular expressions by which a DeepSpeed checkpoint names parameters
// (`universal_checkpoint_info`), in the part of Python's syntax that such lists use. Time is
// proportional to pattern times name, whatever they contain, because the files are not trusted.
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

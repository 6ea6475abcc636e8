// A regular expression of a tokenizer.json, in the syntax of Oniguruma. The properties of
// characters come from unicode/code_points.h. Common patterns run on simple_pattern.h, all others
// on the library. Threads: const, any.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace dslaunch::text {

// The bytes [begin, end) of a text that a pattern matches.
struct Match {
    uint32_t begin = 0;
    uint32_t end = 0;
};

// A compiled expression.
class Pattern {
  public:
    virtual ~Pattern() = default;
    // Appends the matches in TEXT from left to right, without overlaps. An empty match directly
    // after another match is left out. REQUIRES: valid UTF-8 of less than 2 GiB. Throws
    // Error{kInput} if finding the matches takes too long.
    virtual void find_all(std::string_view text, std::vector<Match>& matches) const = 0;
};

// Compiles EXPRESSION. Throws Error{kInput} that says what is wrong with it.
[[nodiscard]] std::unique_ptr<const Pattern> compile_pattern(std::string_view expression);
// Compiles EXPRESSION so that it always runs on the library. Tests compare its matches with the
// matches of compile_pattern().
[[nodiscard]] std::unique_ptr<const Pattern> compile_library_pattern(std::string_view expression);
// Returns a pattern that finds TEXT literally. REQUIRES: TEXT is not empty.
[[nodiscard]] std::unique_ptr<const Pattern> literal_pattern(std::string_view text);

}  // namespace dslaunch::text

// A regular expression of a tokenizer.json, in the language of Oniguruma, whose properties of
// characters come from unicode/code_points.h. Common patterns run on simple_pattern.h, all
// others on the library. Threads: const, any.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace dslaunch::text {

struct Match {
    uint32_t begin = 0;
    uint32_t end = 0;
};

class Pattern {
  public:
    virtual ~Pattern() = default;
    // Appends the matches in TEXT from left to right, without overlaps; an empty one does not stand
    // where another ends. REQUIRES: valid UTF-8 of less than 2 GiB. Throws Error{kInput} where
    // finding them takes too long.
    virtual void find_all(std::string_view text, std::vector<Match>& matches) const = 0;
};

// Throws Error{kInput} with a message that says what is wrong with EXPRESSION.
[[nodiscard]] std::unique_ptr<const Pattern> compile_pattern(std::string_view expression);
// The same on the library alone, which tests compare with.
[[nodiscard]] std::unique_ptr<const Pattern> compile_library_pattern(std::string_view expression);
// Finds TEXT itself. REQUIRES: not empty.
[[nodiscard]] std::unique_ptr<const Pattern> literal_pattern(std::string_view text);

}  // namespace dslaunch::text

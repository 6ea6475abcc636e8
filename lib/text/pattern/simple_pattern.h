// Runs the patterns with which tokenizers split text, without a library. A pattern is a list of
// alternatives. An alternative is a sequence of character sets, with repetitions, groups, and
// lookahead at the next character. Matches are the same as with Oniguruma.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/pattern/char_set.h"
#include "text/pattern/pattern.h"

namespace dslaunch::text {

// One step of a sequence. Steps are numbered; the number after the last step means that the pattern
// has matched.
struct SimpleStep {
    // kSet takes characters of a set, kGroup takes one of several sequences, and kAhead tests the
    // next character without taking it.
    enum class Kind : uint8_t { kSet, kGroup, kAhead };
    Kind kind = Kind::kSet;
    bool gives_back = true;    // kSet: fewer repetitions may let the rest match
    bool is_optional = false;  // kGroup
    bool is_negative = false;  // kAhead
    bool is_possessive = false;
    uint8_t set = 0;  // kSet, kAhead
    uint32_t repeat_min = 1;
    uint32_t repeat_max = 1;
    uint16_t next = 0;
    std::vector<uint16_t> heads;  // kGroup: the first step of each alternative
};

// A compiled expression: its steps, and its character sets. Steps refer to sets by their indices.
struct SimpleProgram {
    std::vector<SimpleStep> steps;
    std::vector<CharSet> sets;
    std::vector<uint16_t> heads;  // the first step of each alternative
};

// Returns null if this engine does not support EXPRESSION.
[[nodiscard]] std::unique_ptr<const Pattern> compile_simple_pattern(std::string_view expression);

// The pattern of a program, with tables of the characters that a match may begin with.
class SimplePattern : public Pattern {
  public:
    explicit SimplePattern(SimpleProgram program);
    void find_all(std::string_view text, std::vector<Match>& matches) const override;

  private:
    struct Run;  // one text, and how many steps are left for it
    [[nodiscard]] bool is_in(uint8_t set, std::string_view text, size_t at, size_t& end) const;
    [[nodiscard]] size_t end_of(Run& run, uint16_t step, size_t at) const;
    [[nodiscard]] size_t end_of_set(Run& run, const SimpleStep& step, size_t at) const;
    [[nodiscard]] uint32_t alternatives_at(std::string_view text, size_t at) const;
    // Collects the character sets with which a match of the steps from STEP on may begin. Returns
    // false if a match may begin with any character.
    bool collect_first(uint16_t step, std::vector<uint8_t>& sets) const;

    SimpleProgram program_;
    // Bit I is set if set I contains the character.
    std::array<uint32_t, 128> ascii_{};
    std::array<uint32_t, 256> classes_{};
    uint32_t has_ranges_ = 0;
    // Bit I is set if alternative I may begin with the character.
    std::array<uint32_t, 128> first_ascii_{};
    std::array<uint32_t, 256> first_classes_{};
};

}  // namespace dslaunch::text

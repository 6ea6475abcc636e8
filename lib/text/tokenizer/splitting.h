// Splitting of pieces where a pattern matches, in the five ways that tokenizer.json offers.
#pragma once

#include <memory>

#include "base/text/json_place.h"
#include "text/pattern/pattern.h"
#include "text/tokenizer/split_text.h"

namespace dslaunch::text {

// The treatment of a match: it is removed, becomes a piece of its own, joins the text before or
// after it, or joins neighbouring matches.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Reads a behavior. Throws Error{kInput} that names PLACE.
[[nodiscard]] Behavior read_behavior(const JsonPlace& place);

// The options of a split.
struct Splitting {
    Behavior behavior = Behavior::kIsolated;
    bool inverts = false;  // the text between matches is treated as the match
};

// Returns a pre-tokenizer that splits at PATTERN with the options SPLITTING.
[[nodiscard]] std::unique_ptr<const PreTokenizer> split_by(std::unique_ptr<const Pattern> pattern,
                                                           Splitting splitting);
// Splits PIECES at PATTERN with the options SPLITTING.
void split_pieces(SplitText& pieces, const Pattern& pattern, Splitting splitting);

}  // namespace dslaunch::text

// Cuts pieces where a pattern matches, in the five ways that tokenizer.json knows.
#pragma once

#include <memory>

#include "base/text/json_place.h"
#include "text/tokenizer/pieces.h"

namespace dslaunch::text {

// The treatment of a match: it goes, it is a piece, it joins its neighbour, or it joins other
// matches.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Reads a behavior. Throws Error{kInput} that names PLACE.
[[nodiscard]] Behavior read_behavior(const JsonPlace& place);

struct Splitting {
    Behavior behavior = Behavior::kIsolated;
    bool inverts = false;  // text between the matches counts as match
};

// Returns a pre-tokenizer that does so.
[[nodiscard]] std::unique_ptr<const PreTokenizer> split_by(std::unique_ptr<const Pattern> pattern,
                                                           Splitting splitting);
// Does the same on PIECES.
void split_pieces(Pieces& pieces, const Pattern& pattern, Splitting splitting);

}  // namespace dslaunch::text

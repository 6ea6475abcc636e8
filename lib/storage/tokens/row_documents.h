// The documents that share a packed row of tokens. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/range.h"

namespace dslaunch::storage {

// The documents that share a row of packed text, found by the numbers in its column `documents`:
// tokens with the same number attend to each other, and positions begin at 0 where the number
// changes.
struct RowDocuments {
    std::vector<Range> places;  // the tokens of each document, in order
    // The first token whose number is not allowed in a packed row: a number below 0, or a number
    // that comes again after a different one. Such tokens would attend to earlier tokens at the
    // same positions. -1 if all numbers are allowed.
    int64_t bad = -1;
};

// Returns the documents of the row with these NUMBERS, one number for each token.
[[nodiscard]] RowDocuments documents_of_row(std::span<const int64_t> numbers);

// The message for a row with a number that is not allowed.
inline constexpr const char* kBadDocument =
    "document numbers in a row must be at least 0, and a document's tokens must be adjacent";

}  // namespace dslaunch::storage

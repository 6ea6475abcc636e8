// The documents that share a row of packed text, by the numbers of its column `documents`: tokens
// with one number see each other, and positions begin at 0 where the number changes. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/range.h"

namespace dslaunch::storage {

struct RowDocuments {
    std::vector<Range> places;  // of the tokens, in order
    // The first token whose number no packed row has: below 0, or one that comes again after
    // another, so that its tokens would see those of before at the same positions; -1: none.
    int64_t bad = -1;
};

[[nodiscard]] RowDocuments documents_of_row(std::span<const int64_t> numbers);

// The words for a bad number.
inline constexpr const char* kBadDocument =
    "documents of a row have numbers from 0 on, and none comes again after another";

}  // namespace dslaunch::storage

// Ranges of elements and how they are cut into parts: shards, stripes, blocks. Pure.
#pragma once

#include <cstdint>

namespace dslaunch {

// A range of elements [begin, begin + numel).
struct Range {
    int64_t begin = 0;
    int64_t numel = 0;

    [[nodiscard]] int64_t end() const { return begin + numel; }  // after the last element
    bool operator==(const Range&) const = default;
};

// Part INDEX of PARTS.
struct PartOf {
    int index = 0;
    int parts = 1;
};
// Divides NUMEL elements into adjacent parts without gaps, and returns the elements of PART. The
// borders are multiples of a cache line (16 fp32), so that with few elements the last parts are
// empty. REQUIRES: 0 <= index < parts, numel >= 0.
[[nodiscard]] Range part_range(int64_t numel, PartOf part);

// Returns the elements that are in both ranges (numel is 0 if there are none).
[[nodiscard]] Range intersect(const Range& a, const Range& b);

}  // namespace dslaunch

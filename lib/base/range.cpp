#include "base/range.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"

namespace dslaunch {

namespace {

constexpr int64_t kBorderNumel = 16;  // a cache line of fp32: adjacent parts never share a line

}  // namespace

Range part_range(int64_t numel, PartOf part) {
    DSL_CHECK(numel >= 0 && part.index >= 0 && part.index < part.parts,
              "part {} of {} of a tensor with {} elements does not exist", part.index, part.parts,
              numel);
    const int64_t share = round_up((numel + part.parts - 1) / part.parts, kBorderNumel);
    const int64_t begin = std::min(numel, share * part.index);
    return {begin, std::min(share, numel - begin)};
}

Range intersect(const Range& a, const Range& b) {
    const int64_t begin = std::max(a.begin, b.begin);
    return {begin, std::max<int64_t>(0, std::min(a.end(), b.end()) - begin)};
}

}  // namespace dslaunch

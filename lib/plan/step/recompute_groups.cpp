#include "plan/step/recompute_groups.h"

#include <algorithm>

namespace dslaunch::plan {
namespace {

void add_recompute_groups(const ModelInfo& model, int64_t groups, const SegmentRange& range,
                          std::vector<RecomputeGroup>& made) {
    int begin = range.begin;
    while (begin < range.end && !model.segments[begin].backward) ++begin;
    groups = std::min<int64_t>(groups, range.end - begin);
    int64_t left = 0;
    for (int s = begin; s < range.end; ++s) left += model.segments[s].activation_bytes.value;
    for (int64_t group = 0; group < groups && begin < range.end; ++group) {
        const int64_t share = left / (groups - group);
        int end = begin;
        int64_t held = 0;
        // Each group gets at least one segment, and at least one segment is left for each later
        // group.
        while (end < range.end && (end == begin || held < share) &&
               range.end - end > groups - group - 1) {
            held += model.segments[end].activation_bytes.value;
            ++end;
        }
        if (end == begin) break;
        if (group + 1 == groups) end = range.end;
        made.push_back({begin, end});
        left -= held;
        begin = end;
    }
}

}  // namespace

std::vector<RecomputeGroup> make_recompute_groups(const ModelInfo& model, int64_t groups,
                                                  const std::vector<StagePart>& parts) {
    std::vector<RecomputeGroup> made;
    if (groups <= 0) return made;
    if (parts.empty())
        add_recompute_groups(model, groups, {0, static_cast<int>(model.segments.size())}, made);
    for (const StagePart& part : parts) add_recompute_groups(model, groups, part.segments, made);
    return made;
}

}  // namespace dslaunch::plan

#include "plan/pipeline/live_front.h"

#include <algorithm>
#include <set>

#include "base/check.h"

namespace dslaunch::plan {
namespace {

constexpr size_t kKinds = 3;  // activations, kept_for_weight, backward_takes

bool covers(const std::vector<int>& larger, const std::vector<int>& smaller) {
    return std::equal(larger.begin(), larger.end(), smaller.begin(), std::greater_equal<>());
}

}  // namespace

LiveFront::LiveFront(const PipelineSchedule& schedule, int stage) {
    Moment held(kKinds * static_cast<size_t>(schedule.shape.chunks), 0);
    std::set<Moment> seen;
    for (const PipelineWork& work : schedule.stages[stage]) {
        int* const of_chunk = &held[kKinds * static_cast<size_t>(work.chunk)];
        const auto add = [&](const HeldOfPart& change, int sign) {
            of_chunk[0] += sign * change.activations;
            of_chunk[1] += sign * change.kept_for_weight;
            of_chunk[2] += sign * change.backward_takes;
        };
        const WorkHolds holds = holds_of(work.kind);
        add(holds.takes, 1);
        seen.insert(held);
        add(holds.gives, -1);
    }
    for (const Moment& moment : seen) {
        const bool covered = std::any_of(seen.begin(), seen.end(), [&](const Moment& other) {
            return other != moment && covers(other, moment);
        });
        if (!covered) moments_.push_back(moment);
    }
}

Bytes LiveFront::peak(const std::vector<PartCost>& costs) const {
    Bytes most;
    for (const Moment& moment : moments_) {
        DSL_CHECK(moment.size() == kKinds * costs.size(), "costs of {} chunks", costs.size());
        Bytes bytes;
        for (size_t chunk = 0; chunk < costs.size(); ++chunk) {
            const int* const of_chunk = &moment[kKinds * chunk];
            bytes += costs[chunk].activations * of_chunk[0] +
                     costs[chunk].kept_for_weight * of_chunk[1] +
                     costs[chunk].backward_takes * of_chunk[2];
        }
        most = std::max(most, bytes);
    }
    return most;
}

}  // namespace dslaunch::plan

#include "plan/pipeline/live_front.h"

#include <algorithm>
#include <set>

#include "base/check.h"

namespace dslaunch::plan {
namespace {

// A byte of each kind that is counted.
constexpr PartCost kUnits[] = {
    {.activations = Bytes{1}}, {.kept_for_weight = Bytes{1}}, {.backward_takes = Bytes{1}}};
constexpr size_t kKinds = std::size(kUnits);

bool covers(const std::vector<int>& larger, const std::vector<int>& smaller) {
    return std::equal(larger.begin(), larger.end(), smaller.begin(), std::greater_equal<>());
}

}  // namespace

LiveFront::LiveFront(const PipelineSchedule& schedule, int stage) {
    Moment held(kKinds * static_cast<size_t>(schedule.shape.chunks), 0);
    std::set<Moment> seen;
    for (const PipelineWork& work : schedule.stages[stage]) {
        int* const of_chunk = &held[kKinds * work.chunk];
        for (size_t k = 0; k < kKinds; ++k)
            of_chunk[k] += static_cast<int>(timed_work(work.kind, kUnits[k]).takes.bytes.value);
        seen.insert(held);
        for (size_t k = 0; k < kKinds; ++k)
            of_chunk[k] -= static_cast<int>(timed_work(work.kind, kUnits[k]).gives.bytes.value);
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

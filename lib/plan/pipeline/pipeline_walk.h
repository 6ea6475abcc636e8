// Runs through a pipeline's schedule in an order that its stages could run it in. Where it stands:
// under the checker and the simulator. A template for its visitor; no threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/pipeline/pipeline_schedule.h"

namespace dslaunch::plan {

// The parts whose values and gradients a part needs from others: -1 where there is none.
struct WorkNeeds {
    int part = 0;
    int from_part = -1;  // of the same kind and micro batch: the part before (forward) or behind
    int to_part = -1;    // who needs what this one gives
};
[[nodiscard]] inline WorkNeeds needs_of(int part, int parts, WorkKind kind) {
    const int before = part - 1;
    const int behind = part + 1 < parts ? part + 1 : -1;
    switch (kind) {
        case WorkKind::kForward:
            return {part, before, behind};
        case WorkKind::kBackward:
        case WorkKind::kBackwardInput:
            return {part, behind, before};
        case WorkKind::kBackwardWeight:
            break;
    }
    return {part, -1, -1};
}

// Calls VISIT(stage, index, needs) for each work of SCHEDULE, of one stage in its order, after the
// work of another stage that it waits for. Gives for each stage how many it came to: less than it
// has where stages wait for each other for ever. REQUIRES: chunks and micro batches are in range.
template <typename Visit>
std::vector<size_t> walk_schedule(const PipelineSchedule& schedule, Visit&& visit) {
    const PipelineShape& shape = schedule.shape;
    // What has come for a part and a micro batch: its inputs, the gradients of its outputs.
    constexpr size_t kInputs = 0;
    constexpr size_t kGradients = 1;
    const auto micro_batches = static_cast<size_t>(shape.micro_batches);
    std::vector<bool> has(2 * static_cast<size_t>(shape.parts()) * micro_batches, false);
    const auto cell = [&](int part, int micro_batch, size_t what) {
        return 2 * (static_cast<size_t>(part) * micro_batches + static_cast<size_t>(micro_batch)) +
               what;
    };
    std::vector<size_t> done(schedule.stages.size(), 0);
    std::vector<size_t> waits_for(schedule.stages.size(), has.size());  // a cell
    std::vector<int> to_try;
    for (int stage = shape.stages; stage-- > 0;) to_try.push_back(stage);
    while (!to_try.empty()) {
        const int stage = to_try.back();
        to_try.pop_back();
        const std::vector<PipelineWork>& works = schedule.stages[stage];
        size_t& next = done[stage];
        for (; next < works.size(); ++next) {
            const PipelineWork& work = works[next];
            const int part = part_of(schedule.kind, shape, {stage, work.chunk});
            const WorkNeeds needs = needs_of(part, shape.parts(), work.kind);
            const size_t what = work.kind == WorkKind::kForward ? kInputs : kGradients;
            const size_t from = cell(part, work.micro_batch, what);
            if (needs.from_part >= 0 && !has[from]) {
                waits_for[stage] = from;
                break;
            }
            visit(stage, next, needs);
            if (needs.to_part < 0) continue;
            const size_t to = cell(needs.to_part, work.micro_batch, what);
            has[to] = true;
            const int receiver = place_of_part(schedule.kind, shape, needs.to_part).stage;
            if (waits_for[receiver] != to) continue;
            waits_for[receiver] = has.size();
            to_try.push_back(receiver);
        }
    }
    return done;
}

}  // namespace dslaunch::plan

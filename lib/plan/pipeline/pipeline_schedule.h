// The order in which each stage of a pipeline runs the forwards and backwards of its micro batches.
// Data path: number of stages -> schedule -> simulator, step plans. Pure.
//
// Words: the model is cut into parts, ranges of segments; a stage runs on one rank (or group of
// ranks) and holds one part for each of its chunks. A backward is whole, or split in two:
// backward_input gives the gradients of the part's inputs, for which the stage before waits;
// backward_weight gives the parameters' gradients, for which nobody waits, so it fills gaps.
//
// Sources: GPipe: Huang et al. 2018. 1F1B: Narayanan et al. 2019 (PipeDream-Flush in 2021).
// Interleaved: Narayanan et al. 2021, arXiv 2104.04473, section 2.2. ZB-H1: Qi et al. 2023, arXiv
// 2401.10241, section 2.2; ZB-V: its section 6.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/kinds/schedule_kind.h"

namespace dslaunch::plan {

struct PipelineShape {
    int stages = 1;
    int chunks = 1;  // chunks of each stage
    int micro_batches = 1;

    [[nodiscard]] int parts() const { return stages * chunks; }
};

enum class WorkKind : uint8_t { kForward, kBackward, kBackwardInput, kBackwardWeight };
[[nodiscard]] std::string_view work_name(WorkKind kind);

struct PipelineWork {
    WorkKind kind = WorkKind::kForward;
    int chunk = 0;
    int micro_batch = 0;

    bool operator==(const PipelineWork&) const = default;
};

// The place of a part of the model.
struct PartPlace {
    int stage = 0;
    int chunk = 0;

    bool operator==(const PartPlace&) const = default;
};

struct PipelineSchedule {
    ScheduleKind kind = ScheduleKind::k1F1B;
    PipelineShape shape;
    std::vector<std::vector<PipelineWork>> stages;  // by stage, its works in order
};

// Returns the place of PART. Parts go round the stages; with kZeroBubbleV down the stages and up
// again, so that the first stage has the first and the last part.
[[nodiscard]] PartPlace place_of_part(ScheduleKind kind, const PipelineShape& shape, int part);
[[nodiscard]] int part_of(ScheduleKind kind, const PipelineShape& shape, PartPlace place);

// Returns the reason that forbids a schedule of this shape, as an error's clause; empty: it may be.
[[nodiscard]] std::string why_no_schedule(ScheduleKind kind, const PipelineShape& shape);

// Returns the largest number of forwards whose activations a stage holds, counted in chunks;
// forwards that only wait for their backward_weight count.
[[nodiscard]] int live_bound(ScheduleKind kind, const PipelineShape& shape, int stage);

// Returns the schedule. Backwards of a chunk run in the order of micro batches, so that every
// schedule sums gradients in that order. REQUIRES: why_no_schedule is empty.
[[nodiscard]] PipelineSchedule make_schedule(ScheduleKind kind, const PipelineShape& shape);

// Returns the faults of a schedule, a sentence each: work that is missing, repeated or foreign,
// backwards out of order, more activations than live_bound, stages that wait for ever (receives
// block, sends do not). Empty: it can be run.
[[nodiscard]] std::vector<std::string> check_schedule(const PipelineSchedule& schedule);

}  // namespace dslaunch::plan

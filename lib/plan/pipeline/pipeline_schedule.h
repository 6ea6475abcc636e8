// The order in which each stage of a pipeline runs the forwards and backwards of its micro batches.
// Data path: number of stages -> schedule -> simulator, step plans. Pure.
//
// Terms: the model is cut into parts, which are ranges of segments. A stage runs on one rank (or
// group of ranks) and holds one part for each of its chunks. A work is a forward or backward of one
// part for one micro batch. A backward is whole, or split in two: backward_input computes the
// gradients of the part's inputs, for which the stage before waits; backward_weight computes the
// parameters' gradients, for which no stage waits, so it can fill gaps.
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

// The size of a pipeline, and the number of micro batches in its step.
struct PipelineShape {
    int stages = 1;
    int chunks = 1;  // chunks of each stage
    int micro_batches = 1;

    // Returns the number of parts of the model.
    [[nodiscard]] int parts() const { return stages * chunks; }
};

// The kinds of works; the terms above explain them.
enum class WorkKind : uint8_t { kForward, kBackward, kBackwardInput, kBackwardWeight };
// Returns the name of KIND as `dslaunch plan` prints it.
[[nodiscard]] std::string_view work_name(WorkKind kind);

// A work of a stage.
struct PipelineWork {
    WorkKind kind = WorkKind::kForward;
    int chunk = 0;
    int micro_batch = 0;

    bool operator==(const PipelineWork&) const = default;
};

// The stage and chunk that hold a part of the model.
struct PartPlace {
    int stage = 0;
    int chunk = 0;

    bool operator==(const PartPlace&) const = default;
};

// The order of the works of all stages.
struct PipelineSchedule {
    ScheduleKind kind = ScheduleKind::k1F1B;
    PipelineShape shape;
    std::vector<std::vector<PipelineWork>> stages;  // by stage, its works in order
};

// Returns the stage and chunk of PART. Parts are assigned to the stages in rotation. With
// kZeroBubbleV, they are assigned from the first stage to the last, and then from the last to the
// first, so that the first stage has the first and the last part. part_of is the inverse.
[[nodiscard]] PartPlace place_of_part(ScheduleKind kind, const PipelineShape& shape, int part);
[[nodiscard]] int part_of(ScheduleKind kind, const PipelineShape& shape, PartPlace place);

// Returns the reason why a schedule of this shape is not possible, as a clause for an error; empty
// if it is possible.
[[nodiscard]] std::string why_no_schedule(ScheduleKind kind, const PipelineShape& shape);

// Returns the schedule. The backwards of a chunk run in the order of micro batches, so every
// schedule sums gradients in the same order. REQUIRES: why_no_schedule is empty.
[[nodiscard]] PipelineSchedule make_schedule(ScheduleKind kind, const PipelineShape& shape);

}  // namespace dslaunch::plan

// The work of one pipeline stage in a step plan: its parts of the model and the sides at which live
// values come and go. Value types.
#pragma once

#include <cstddef>
#include <vector>

#include "base/bytes.h"
#include "plan/model/model_info.h"
#include "plan/pipeline/pipeline_schedule.h"

namespace dslaunch::plan {

// A parameter that several stages read: each has a copy, and their gradients are added.
struct TiedParameter {
    int parameter = 0;
    std::vector<int> stages;  // ascending
};

// The place from which live values come, or to which they go.
struct StageSide {
    int stage = -1;   // stage with the part on that side; -1: none, but batches or the loss
    bool up = false;  // true: the values pass on the way up of a V
};

// A range of the model's segments that a stage has; they are neighbours in the plan too.
struct StagePart {
    int part = 0;           // part of the model
    SegmentRange segments;  // segments of the plan
    int first_segment = 0;  // segment of the model at its begin
    StageSide before = {};
    StageSide behind = {};
    Bytes received = {};           // live values before it, one micro step
    bool gives_gradients = false;  // true: sends gradients to the part before
};

// One stage of a pipeline. The model of its plan has only the segments of its parts.
struct StageWork {
    std::vector<PipelineWork> order;  // empty: no pipeline, each micro step forward and backward
    int stage = 0;
    std::vector<StagePart> parts = {};     // by chunk; one after the other in the plan
    std::vector<TiedParameter> ties = {};  // parameters that this stage and others train, by
                                           // parameter

    [[nodiscard]] bool in_pipeline() const { return !order.empty(); }
    // Returns true if the values at this SIDE of a part stay on this stage, for a neighbouring
    // part.
    [[nodiscard]] bool stay(const StageSide& side) const { return side.stage == stage; }
};

// Returns the parts of WORK; without a pipeline one of all SEGMENTS.
[[nodiscard]] std::vector<StagePart> parts_of(const StageWork& work, size_t segments);
// Returns the part of a segment of the plan, and that segment's index in the model.
[[nodiscard]] size_t part_at(const std::vector<StagePart>& parts, int segment);
[[nodiscard]] int segment_of_model(const std::vector<StagePart>& parts, int segment);

}  // namespace dslaunch::plan

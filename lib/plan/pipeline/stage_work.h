// The work of one pipeline stage in a step plan: its parts of the model, and the stages with which
// it exchanges live values. Value types.
#pragma once

#include <cstddef>
#include <vector>

#include "base/bytes.h"
#include "plan/model/model_info.h"
#include "plan/pipeline/pipeline_schedule.h"

namespace dslaunch::plan {

// A parameter that several stages read. Each of these stages has a copy, and the gradients of all
// copies are added.
struct TiedParameter {
    int parameter = 0;
    std::vector<int> stages;  // ascending
};

// One side of a part: the stage from which live values come, or to which they go.
struct StageSide {
    int stage = -1;   // stage of the part on that side; -1: no part, but batches or the loss
    bool up = false;  // true: the values pass on the upward half of a V
};

// A range of the model's segments that belongs to a stage. The segments are contiguous in the
// stage's plan too.
struct StagePart {
    int part = 0;           // part of the model
    SegmentRange segments;  // its segments, as indices in the plan
    int first_segment = 0;  // its first segment, as an index in the model
    StageSide before = {};
    StageSide behind = {};
    Bytes received = {};           // live values before it, of one micro step
    bool gives_gradients = false;  // true: sends gradients to the previous part
};

// One stage of a pipeline. The model in the stage's plan has only the segments of the stage's
// parts.
struct StageWork {
    std::vector<PipelineWork> order;  // empty: no pipeline, each micro step runs as a whole
    int stage = 0;
    std::vector<StagePart> parts = {};     // by chunk; they follow each other in the plan
    std::vector<TiedParameter> ties = {};  // parameters that other stages train too, sorted

    // Returns true if the step consists of works, false if each micro step runs as a whole.
    [[nodiscard]] bool in_pipeline() const { return !order.empty(); }
    // Returns true if the values on SIDE of a part stay on this stage, because the neighbouring
    // part is here too.
    [[nodiscard]] bool stay(const StageSide& side) const { return side.stage == stage; }
};

// Returns the parts of WORK. Without a pipeline, returns one part with all SEGMENTS.
[[nodiscard]] std::vector<StagePart> parts_of(const StageWork& work, size_t segments);
// Returns the index of the part that contains SEGMENT. segment_of_model returns the index of
// SEGMENT in the model. SEGMENT is an index in the plan.
[[nodiscard]] size_t part_at(const std::vector<StagePart>& parts, int segment);
[[nodiscard]] int segment_of_model(const std::vector<StagePart>& parts, int segment);

}  // namespace dslaunch::plan

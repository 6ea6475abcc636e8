// What a pipeline's schedule takes: when each work begins and ends, how long stages stand still,
// what activations they hold. Where it stands: schedule and costs -> [here] -> plan's tables and
// pictures. Pure; a million works take about 0.1 s.
//
// Model: a stage runs its works one after the other, each as soon as what it needs has come. What
// goes to another stage leaves when the work that makes it ends, while the stage goes on (sends are
// buffered); what leaves a stage for the same neighbour goes one after the other. Everything begins
// at once and the step ends with the last work: the optimizer is not in it.
#pragma once

#include <cstddef>
#include <vector>

#include "base/bytes.h"
#include "plan/pipeline/pipeline_schedule.h"

namespace dslaunch::plan {

// Of one part of the model and one micro batch. UNITS: seconds.
struct PartCost {
    double forward_s = 0;
    double backward_input_s = 0;   // with what is recomputed for it
    double backward_weight_s = 0;  // a whole backward takes both
    double send_s = 0;             // its outputs to the next part, and their gradients back
    Bytes activations = {};        // from the begin of forward to the end of (whole) backward
    Bytes kept_for_weight = {};    // what is left of them, and made for it, from the end of
                                   // backward_input to the end of backward_weight
    Bytes backward_takes = {};     // besides, while a backward that is not of weights runs
};

struct WorkSpan {
    double begin_s = 0;
    double end_s = 0;
};

struct StageUse {
    double busy_s = 0;
    double begin_s = 0;  // of its first work
    double end_s = 0;    // of its last work
    int live_max = 0;    // forwards whose activations, or rest of them, are held at once, in chunks
    Bytes live_bytes_max;  // activations and what a backward takes
};

struct PipelineRun {
    std::vector<std::vector<WorkSpan>> spans;  // as PipelineSchedule::stages
    std::vector<StageUse> stages;
    double step_s = 0;  // from the begin of the first work to the end of the last
    // The bubble: what part of the step stages stand still, over all of them. Of 1F1B with parts of
    // equal cost (stages - 1) / (micro_batches + stages - 1).
    double idle_share = 0;

    [[nodiscard]] double idle_share_of(size_t stage) const {
        return step_s > 0 ? 1 - stages[stage].busy_s / step_s : 0;
    }
};

// COSTS: by part of the model. REQUIRES: check_schedule finds nothing.
[[nodiscard]] PipelineRun simulate_pipeline(const PipelineSchedule& schedule,
                                            const std::vector<PartCost>& costs);

}  // namespace dslaunch::plan

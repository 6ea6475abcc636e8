// The costs of segments in a pipeline, from what is known of a model and of the config. Where it
// stands: model_info and times -> [here] -> stage choice. Pure.
#pragma once

#include <vector>

#include "plan/model/model_info.h"
#include "plan/pipeline/stage_choice.h"
#include "plan/step/step_plan.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::plan {

// Times come from the FLOPs of products and convolutions: as many for the gradients of inputs and
// of weights as forward, where a segment has a backward. FLOPS_PER_S: of a rank, > 0.
[[nodiscard]] std::vector<SegmentTimes> times_from_flops(const ModelInfo& model,
                                                         double flops_per_s);

// TIMES: by segment. OPTIONS: of the data-parallel ranks of one stage, whose ZeRO stage decides
// what each holds of a parameter. The caller fills in schedule, shape, limit and link.
// Activations are what autograd keeps and the live values before a segment; where OPTIONS ask for
// recompute, those alone, and a backward takes a forward more and what that keeps. Between the two
// halves of a backward lives what MODEL has measured of it; where it has not, as much as before it.
[[nodiscard]] StageRequest make_stage_request(const ModelInfo& model,
                                              const StepPlanOptions& options,
                                              const std::vector<SegmentTimes>& times);

}  // namespace dslaunch::plan

// The costs of segments in a pipeline, from the facts of a model and a config. Data path:
// model_info and times -> [here] -> stage choice. Pure.
#pragma once

#include <vector>

#include "plan/choose/stage_choice.h"
#include "plan/model/model_info.h"
#include "plan/step/step_plan.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::plan {

// Times by the FLOPs of products and convolutions. Gradients of inputs and of weights take as many
// as the forward each, if a segment has a backward. FLOPS_PER_S is a rank's rate, > 0. If
// MEMORY_BYTES_PER_S is known, no pass is faster than parameters and kept values pass the memory
// once.
[[nodiscard]] std::vector<SegmentTimes> times_from_flops(const ModelInfo& model, double flops_per_s,
                                                         double memory_bytes_per_s = 0);

// TIMES are by segment. OPTIONS are for the data-parallel ranks of one stage, whose ZeRO stage
// decides each rank's part of a parameter. The caller fills in schedule, shape, limit and link.
// Activations are the tensors that autograd keeps and the live values before a segment. If OPTIONS
// ask for recompute, they are the live values alone, and a backward takes one forward more and the
// memory that it keeps. The bytes between the two halves of a backward are MODEL's measure; without
// a measure, as many as before the backward.
[[nodiscard]] StageRequest make_stage_request(const ModelInfo& model,
                                              const StepPlanOptions& options,
                                              const std::vector<SegmentTimes>& times);

}  // namespace dslaunch::plan

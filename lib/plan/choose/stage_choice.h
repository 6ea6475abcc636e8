// The choice of the segments for each stage of a pipeline, and the costs of segments that it uses.
// Data path: model info, times, a schedule -> [here] -> costs of parts for the simulator, step
// plans. Pure; ranks with the same costs choose alike (measured times are one rank's, and must be
// sent to the others).
#pragma once

#include <optional>
#include <vector>

#include "base/bytes.h"
#include "plan/model/model_info.h"
#include "plan/pipeline/stage_work.h"
#include "plan/pipeline/timed_schedule.h"
#include "plan/step/step_plan.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::plan {

// The cost of one segment and one micro batch. UNITS: seconds.
struct SegmentCost {
    double forward_s = 0;
    double backward_input_s = 0;  // with recomputation
    double backward_weight_s = 0;
    Bytes activations = {};      // see PartCost, inputs included
    Bytes kept_for_weight = {};  // see PartCost
    Bytes backward_takes = {};   // see PartCost
    Bytes outputs = {};          // bytes sent by a cut after it; their gradients come back
};

struct StageRequest {
    ScheduleKind schedule = ScheduleKind::k1F1B;
    PipelineShape shape;
    std::vector<SegmentCost> segments;
    std::vector<std::vector<int>> parameters;  // by segment, indices into state_bytes
    // The bytes of each parameter that a rank of its stage holds all the time: weights, gradients,
    // states.
    std::vector<Bytes> state_bytes;
    std::optional<Bytes> memory_max;  // limit of a rank
    double link_bytes_per_s = 0;      // rate between stages; 0: not known, transfers take no time
};

struct StageLoad {
    double micro_batch_s = 0;  // forward and backward of all its parts
    Bytes states;              // a parameter that several segments read counts once
    Bytes activations;         // the most, as the simulator counts them

    [[nodiscard]] Bytes memory() const { return states + activations; }
};

struct StageChoice {
    std::vector<SegmentRange> parts;  // by part of the model; parts tile the segments
    std::vector<PartCost> costs;      // by part of the model
    std::vector<StageLoad> stages;
    std::vector<TiedParameter> tied;  // by parameter
};

// The moments of a schedule in which a stage can hold most activations, whatever the costs of its
// parts, so that many choices of parts are compared without running through the schedule for each.
class LiveFront {
  public:
    // REQUIRES: SCHEDULE comes from make_schedule.
    LiveFront(const PipelineSchedule& schedule, int stage);

    // Returns the most that the stage holds, LaneUse::live_bytes_max. COSTS are by chunk of the
    // stage.
    [[nodiscard]] Bytes peak(const std::vector<PartCost>& costs) const;

  private:
    // Three counts per chunk, one after the other: forwards whose activations are held,
    // backward_weights that are still to come, and backwards that run.
    using Moment = std::vector<int>;

    std::vector<Moment> moments_;  // no moment has less of everything than another
};

// Chooses the stages; the slowest one decides the time of a step. With one chunk a stage, exactly:
// of the choices that fit in memory_max whose slowest stage is within kSlowestSlack of the best, it
// takes the one that sends least. With several, it begins with parts of even time and moves borders
// one segment at a time while the slowest stage gets faster, or stays so and less is sent. Throws
// Error{kConfig} if there are fewer segments than parts, or nothing fits.
[[nodiscard]] StageChoice choose_stages(const StageRequest& request);
inline constexpr double kSlowestSlack = 1.02;

// Returns the parts that begin at segment 0 and at FIRST_SEGMENTS. Throws Error{kConfig} if these
// are not parts - 1 ascending numbers of segments, or if the parts do not fit.
[[nodiscard]] StageChoice given_stages(const StageRequest& request,
                                       const std::vector<int>& first_segments);

// Returns times by the FLOPs of products and convolutions. Gradients of inputs and of weights take
// as many as the forward each, if a segment has a backward. FLOPS_PER_S is a rank's rate, > 0. If
// MEMORY_BYTES_PER_S is known, no pass is faster than one reading of parameters and kept values.
[[nodiscard]] std::vector<SegmentTimes> times_from_flops(const ModelInfo& model, double flops_per_s,
                                                         double memory_bytes_per_s = 0);

// Returns a request. TIMES are by segment. OPTIONS are for the data-parallel ranks of one stage,
// whose ZeRO stage decides each rank's part of a parameter. The caller fills in schedule, shape,
// limit and link. Activations are the tensors that autograd keeps and the live values before a
// segment. With recompute they are only the live values, and a backward takes one forward more and
// the memory that it keeps. The bytes between the two halves of a backward are MODEL's measure;
// without a measure, as many as before the backward.
[[nodiscard]] StageRequest make_stage_request(const ModelInfo& model,
                                              const StepPlanOptions& options,
                                              const std::vector<SegmentTimes>& times);

}  // namespace dslaunch::plan

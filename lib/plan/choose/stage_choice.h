// Chooses the segments of each stage of a pipeline, from the costs of segments, which are computed
// here too. Data path: model info, times, a schedule -> [here] -> costs of parts for the simulator,
// step plans. Pure. Ranks with the same costs make the same choice; measured times come from one
// rank, so they must be sent to the others.
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

// The cost of one segment for one micro batch. UNITS: seconds.
struct SegmentCost {
    double forward_s = 0;
    double backward_input_s = 0;  // includes recomputation
    double backward_weight_s = 0;
    Bytes activations = {};      // see PartCost; includes the inputs
    Bytes kept_for_weight = {};  // see PartCost
    Bytes backward_takes = {};   // see PartCost
    Bytes outputs = {};          // bytes sent if the model is cut after the segment; as many bytes
                                 // of gradients come back
};

// The costs from which stages are chosen, and the conditions for the choice.
struct StageRequest {
    ScheduleKind schedule = ScheduleKind::k1F1B;
    PipelineShape shape;
    std::vector<SegmentCost> segments;
    std::vector<std::vector<int>> parameters;  // by segment, indices into state_bytes
    // For each parameter, the bytes of its weights, gradients and optimizer states that a rank of
    // the parameter's stage holds permanently.
    std::vector<Bytes> state_bytes;
    std::optional<Bytes> memory_max;  // limit of a rank
    double link_bytes_per_s = 0;      // rate between stages; 0: not known, transfers take no time
};

// The time and the memory of one rank of a stage.
struct StageLoad {
    double micro_batch_s = 0;  // forward and backward of all its parts
    Bytes states;              // a parameter is counted once, even if several segments read it
    Bytes activations;         // the most at once, counted as in the simulator

    // Returns the largest number of bytes that the rank needs at once.
    [[nodiscard]] Bytes memory() const { return states + activations; }
};

// The chosen segments of all stages, with their costs.
struct StageChoice {
    std::vector<SegmentRange> parts;  // by part of the model; parts tile the segments
    std::vector<PartCost> costs;      // by part of the model
    std::vector<StageLoad> stages;
    std::vector<TiedParameter> tied;  // by parameter
};

// The moments of a schedule at which a stage may hold the most bytes. They do not depend on the
// sizes of the parts, so many choices of parts can be compared quickly, without a run through the
// whole schedule.
class LiveFront {
  public:
    // REQUIRES: SCHEDULE comes from make_schedule.
    LiveFront(const PipelineSchedule& schedule, int stage);

    // Returns the largest number of bytes that the stage holds at once, as in
    // LaneUse::live_bytes_max. COSTS are indexed by chunk of the stage.
    [[nodiscard]] Bytes peak(const std::vector<PartCost>& costs) const;

  private:
    // Three counts for the first chunk, then three for the next chunk, and so on: the forwards with
    // held activations, the backward_weights that are not finished, and the running backwards.
    using Moment = std::vector<int>;

    std::vector<Moment> moments_;  // each moment exceeds every other moment in at least one count
};

// Chooses the segments of the stages. The slowest stage decides the time of a step. If each stage
// has one chunk, the result is exact: among the choices that fit in memory_max and are at most
// kSlowestSlack times as slow as the best, it takes the choice that sends least. If stages have
// several chunks, the search begins with parts that take equally long. It moves borders by one
// segment at a time, as long as the slowest stage becomes faster, or stays as fast and fewer bytes
// are sent. Throws Error{kConfig} if there are fewer segments than parts, or if nothing fits.
[[nodiscard]] StageChoice choose_stages(const StageRequest& request);
inline constexpr double kSlowestSlack = 1.02;

// Returns the choice whose first part begins at segment 0 and whose other parts begin at
// FIRST_SEGMENTS. Throws Error{kConfig} unless FIRST_SEGMENTS has one number for each of the other
// parts, in ascending order, and the parts fit in memory.
[[nodiscard]] StageChoice given_stages(const StageRequest& request,
                                       const std::vector<int>& first_segments);

// Returns times that are estimated from the FLOPs of matrix products and convolutions. In a segment
// with a backward, the gradients of the inputs take as many FLOPs as the forward, and so do the
// gradients of the weights. FLOPS_PER_S is one rank's rate, > 0. If MEMORY_BYTES_PER_S is known
// (not 0), each pass takes at least the time to read the parameters and the kept activations once.
[[nodiscard]] std::vector<SegmentTimes> times_from_flops(const ModelInfo& model, double flops_per_s,
                                                         double memory_bytes_per_s = 0);

// Returns a request that still lacks schedule, shape, memory limit and link rate; the caller fills
// them in. TIMES are indexed by segment. OPTIONS are for the data-parallel ranks of one stage;
// their ZeRO stage decides how much of a parameter each rank holds. The activations of a segment
// are the tensors that autograd keeps and the live values before the segment. With recomputation,
// the activations are only the live values; a backward then also takes the time of a forward, and
// the memory that autograd keeps. If a backward is split, its bytes until the second half are
// SegmentInfo::weight_half_bytes or, if these were not measured, the bytes that autograd keeps.
[[nodiscard]] StageRequest make_stage_request(const ModelInfo& model,
                                              const StepPlanOptions& options,
                                              const std::vector<SegmentTimes>& times);

}  // namespace dslaunch::plan

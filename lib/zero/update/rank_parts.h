// The parts of one rank's state and the data of the current step, shared by update paths, norm and
// saving. Data path: ZeRO state -> [here] -> update paths, state values. Threads: the lanes of the
// ZeRO state.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "config/run/run_config.h"
#include "graph/archive/model.h"
#include "plan/step/step_plan.h"
#include "runtime/state/saved_piece.h"
#include "runtime/state/stepping_state.h"
#include "runtime/state/update_witness.h"
#include "zero/exchange/compressed_exchange.h"
#include "zero/gradients/gradient_norm.h"
#include "zero/gradients/gradient_sums.h"
#include "zero/parameters/parameter_store.h"
#include "zero/states/shard_map.h"
#include "zero/states/shard_optimizer.h"
#include "zero/states/state_store.h"
#include "zero/states/update_rules.h"
#include "zero/update/update_runs.h"

namespace dslaunch::zero {

// The state's slices of the arena, the same on all ranks of a host.
struct ZeroSlices {
    ParameterSlices parameters;
    std::vector<runtime::BucketId> gradients;
    NormSlices norm;
    // At stage 0, one signal per bucket. A rank posts it when it no longer needs the parameters
    // from before the update.
    std::vector<runtime::SignalId> replicas;
    ExchangeSlices exchange;  // used if hosts compress their exchange
};

// The settings of a rank's state.
struct ZeroOptions {
    config::OptimizerConfig optimizer;
    double gradient_clipping = 0;  // 0: off
    DType dtype = DType::kF32;     // the dtype of the parameters as segments read them
    // True while a loss scale is being searched for: the step is skipped if gradients are not
    // finite. Otherwise such gradients end the run.
    bool skip_overflow = false;
    // The state from which the run resumes. If it is null, training starts from the values that
    // were loaded with the model. It must live until the ZeRO state has been made.
    runtime::SavedState* saved = nullptr;
    PipelineScope pipeline = {};
    // The tensor group if the model's parameters are shares, null if they are whole. It must
    // outlive the state.
    const graph::TensorRank* tensor = nullptr;
    // GradientOptions::usage_varies.
    bool usage_varies = true;
    // If there are no rules, OPTIMIZER updates every parameter.
    UpdateRules rules = {};
    bool adds_ranks = false;  // GradientOptions::adds_ranks
};

// The data from which all parts of a state are built. All of it must outlive the state.
struct ZeroPlace {
    const plan::FlatLayout* layout = nullptr;
    const plan::Partition* partition = nullptr;  // null at stage 0
    const plan::StepPlanOptions* plan_options = nullptr;
    const plan::StepPlan* plan = nullptr;
    const ShardMap* map = nullptr;
    // The device that the arena's memory is on. REQUIRES: if it is a GPU, the map's topology has
    // only one rank on each host.
    TensorDevice device = {};
};

// The current step; between steps, the last step.
struct StepNow {
    int64_t number = 0;  // steps since this state was made
    runtime::StepSettings settings;
    float clip_factor = 1;                      // multiplies gradients; includes 1 / loss scale
    std::optional<runtime::Overflow> overflow;  // set if the step is skipped
};

// The stores of one rank, and the step that they are in. Only the functions below change the step
// and the runs; the stores belong to all paths.
class RankParts {
  public:
    // Moves the model's parameters into the arena, or into OFFLOAD if they are offloaded. Blocks
    // until all ranks have called it. All references must outlive the parts.
    RankParts(graph::Model& model, const ZeroPlace& place, const ZeroSlices& slices,
              const runtime::Arena& arena, runtime::HostGroup& group,
              runtime::Collectives& collectives, const ZeroOptions& options, OffloadFile* offload);
    RankParts(const RankParts&) = delete;
    RankParts& operator=(const RankParts&) = delete;

    // The data that a state is built from; the options have at least one rule.
    [[nodiscard]] const graph::Model& model() const { return model_; }
    [[nodiscard]] const ZeroPlace& place() const { return place_; }
    [[nodiscard]] const ZeroSlices& slices() const { return slices_; }
    [[nodiscard]] runtime::HostGroup& group() const { return group_; }
    [[nodiscard]] runtime::Collectives& collectives() const { return collectives_; }
    [[nodiscard]] const ZeroOptions& options() const { return options_; }
    // The stores. Their headers say which thread may call which function.
    [[nodiscard]] StateStore& states() { return states_; }
    [[nodiscard]] const StateStore& states() const { return states_; }
    [[nodiscard]] ParameterStore& parameters() { return parameters_; }
    [[nodiscard]] const ParameterStore& parameters() const { return parameters_; }
    [[nodiscard]] GradientSums& gradients() { return gradients_; }
    [[nodiscard]] const GradientSums& gradients() const { return gradients_; }

    // Shortcuts to the place and the options. half() returns true if parameters are in 16 bits.
    [[nodiscard]] bool half() const { return options_.dtype != DType::kF32; }
    // Returns true if the 16-bit parameters have no master copies.
    [[nodiscard]] bool without_masters() const { return half() && !place_.plan_options->master; }
    [[nodiscard]] const plan::Bucket& bucket(int b) const { return place_.layout->buckets[b]; }
    [[nodiscard]] device::Device& device() const { return *place_.device.device; }
    [[nodiscard]] device::Queue& queue() const { return device().communication(); }
    // Returns true if this rank writes the parameters of a bucket's PART.
    [[nodiscard]] bool writes(int b, const ChunkPart& part) const {
        return place_.map->pieces(b)[static_cast<size_t>(part.piece)].writes;
    }
    // Returns true if updates read parameters that other ranks write.
    [[nodiscard]] bool reads_replicas() const {
        return place_.map->stage() == 0 && !half() && options_.optimizer.decays_gradient();
    }

    // Waits until all local ranks have posted GENERATION of ZeroSlices::replicas for bucket B.
    void meet(int b, int64_t generation);
    // Waits until the last step's updates are done on every rank.
    void settle();
    // Switches to PLAN for the next steps. Called between steps. PLAN must outlive the parts.
    void follow(const plan::StepPlan& plan);

    // The current step: begin_step() starts it, multiply_gradients() sets its clip factor, and
    // skip_step() records why nothing is updated in it.
    void begin_step(const runtime::StepSettings& settings);
    void multiply_gradients(float clip_factor) { now_.clip_factor = clip_factor; }
    void skip_step(const runtime::Overflow& overflow) { now_.overflow = overflow; }
    [[nodiscard]] const StepNow& now() const { return now_; }

    // Finds the runs of bucket B when its update begins. The bucket must be open. If COUNTS is
    // true, counts this step's update of the slices in the runs.
    void open_runs(int b, bool counts = true);
    // The runs (ranges with one learning rate) of the bucket that is being updated, and the number
    // of updates that each slice has had.
    [[nodiscard]] const UpdateRuns& runs() const { return runs_; }
    // Returns a run's learning rate in this step.
    [[nodiscard]] double rate(const Run& run) const {
        return now_.settings.lr * runs_.rule(run).lr_scale;
    }
    // Returns the optimizer of rule number RULE.
    [[nodiscard]] ShardOptimizer& optimizer(int rule) {
        return optimizers_[static_cast<size_t>(rule)];
    }

    // Returns the arrays for an update of RANGE, which is in PART, without its gradients.
    [[nodiscard]] kernels::FlatRange arrays_of(int b, const ChunkPart& part, const ChunkView& view,
                                               const Range& range) const;
    // Calls use(range, gradients, scale) for parts of RANGE, which is in PART. The gradients come
    // from VIEW's sums or, if it has no sums, from the bucket as in GradientSums::for_each_in.
    template <typename Use>
    void for_gradients(int b, const ChunkPart& part, const Range& range, const ChunkView& view,
                       Use&& use) const {
        if (view.sums == nullptr) return gradients_.for_each_in(b, range, use);
        const float* const sums = view.sums + part.offset_numel + range.begin - part.range.begin;
        use(range, std::span<const float* const>(&sums, 1), 1.0F);
    }

    // Set the objects that updates call: the guard before a chunk changes, the witness before and
    // after a change. Null removes the object. Called between steps. The objects must live as long
    // as they are set.
    void set_guard(runtime::UpdateGuard* guard) { guard_ = guard; }
    void set_witness(runtime::UpdateWitness* witness) { witness_ = witness; }
    [[nodiscard]] runtime::UpdateGuard* guard() const { return guard_; }
    [[nodiscard]] runtime::UpdateWitness* witness() const { return witness_; }

  private:
    const graph::Model& model_;
    ZeroPlace place_;
    ZeroSlices slices_;
    runtime::HostGroup& group_;
    runtime::Collectives& collectives_;
    ZeroOptions options_;
    int64_t first_step_;                      // steps done before this state was made
    std::vector<ShardOptimizer> optimizers_;  // one per rule
    StateStore states_;
    ParameterStore parameters_;
    GradientSums gradients_;
    StepNow now_;
    UpdateRuns runs_;
    runtime::UpdateGuard* guard_ = nullptr;
    runtime::UpdateWitness* witness_ = nullptr;
};

}  // namespace dslaunch::zero

// The parts of one rank's state and the step at hand, shared by the ways to update, the norm and
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

namespace dslaunch::zero {

// The state's places in the arena, the same on all ranks of a host.
struct ZeroSlices {
    ParameterSlices parameters;
    std::vector<runtime::BucketId> gradients;
    NormSlices norm;
    // One per bucket: this rank no longer needs the parameters of before the update (stage 0).
    std::vector<runtime::SignalId> replicas;
    ExchangeSlices exchange;  // if hosts compress what they exchange
};

struct ZeroOptions {
    config::OptimizerConfig optimizer;
    double gradient_clipping = 0;  // 0: off
    DType dtype = DType::kF32;     // the dtype of the parameters as segments read them
    // True while a loss scale is being searched for: gradients that are not finite then skip the
    // step instead of ending the run.
    bool skip_overflow = false;
    // The state to resume from must live until the ZeRO state is made. Null means the model as
    // loaded.
    runtime::SavedState* saved = nullptr;
    PipelineScope pipeline = {};
    // The tensor group whose shares the model's parameters are. Null means the parameters are
    // whole. It must outlive the state.
    const graph::TensorRank* tensor = nullptr;
    // GradientOptions::usage_varies.
    bool usage_varies = true;
    // No rules: OPTIMIZER updates every parameter.
    UpdateRules rules = {};
    bool adds_ranks = false;  // GradientOptions::adds_ranks
};

// The data that all parts of a state are built from. All of it must outlive the state.
struct ZeroPlace {
    const plan::FlatLayout* layout = nullptr;
    const plan::Partition* partition = nullptr;  // null at stage 0
    const plan::StepPlanOptions* plan_options = nullptr;
    const plan::StepPlan* plan = nullptr;
    const ShardMap* map = nullptr;
    // The device that the arena's memory is on. REQUIRES: each rank is alone on its host in the
    // map's topology if that is not the host.
    TensorDevice device = {};
};

// Neighbouring slices of a bucket that got a gradient, follow the same rule and have had equally
// many updates. Just one if the rule needs whole tensors.
struct Run {
    Range range;  // within the bucket
    int64_t step = 1;
    int rule = 0;
    int slice = -1;  // the first
};

// The step at hand, or between steps the last one.
struct StepNow {
    int64_t number = 0;  // steps since this state was made
    runtime::StepSettings settings;
    float clip_factor = 1;                      // includes the factor 1 / loss scale
    std::optional<runtime::Overflow> overflow;  // the step is skipped
};

struct RankParts {
    // Moves the model's parameters into the arena, and the offloaded ones to OFFLOAD. Blocks until
    // all ranks have come. All references must outlive the parts.
    RankParts(graph::Model& model, const ZeroPlace& place, const ZeroSlices& slices,
              const runtime::Arena& arena, runtime::HostGroup& group,
              runtime::Collectives& collectives, const ZeroOptions& options, OffloadFile* offload);
    RankParts(const RankParts&) = delete;
    RankParts& operator=(const RankParts&) = delete;

    [[nodiscard]] bool half() const { return options.dtype != DType::kF32; }
    // True if 16-bit parameters are all there is.
    [[nodiscard]] bool without_masters() const { return half() && !place.plan_options->master; }
    [[nodiscard]] const plan::Bucket& bucket(int b) const { return place.layout->buckets[b]; }
    [[nodiscard]] device::Device& device() const { return *place.device.device; }
    [[nodiscard]] device::Queue& queue() const { return device().communication(); }
    [[nodiscard]] const UpdateRule& rule(const Run& run) const {
        return options.rules.rules[static_cast<size_t>(run.rule)];
    }
    [[nodiscard]] double rate(const Run& run) const { return now.settings.lr * rule(run).lr_scale; }
    // True if this rank writes the parameters of a bucket's PART.
    [[nodiscard]] bool writes(int b, const ChunkPart& part) const {
        return place.map->pieces(b)[static_cast<size_t>(part.piece)].writes;
    }
    // True if updates read parameters that other ranks write.
    [[nodiscard]] bool reads_replicas() const {
        return place.map->stage() == 0 && !half() && options.optimizer.decays_gradient();
    }
    // Waits until all local ranks have come to GENERATION of a bucket's replicas.
    void meet(int b, int64_t generation);
    // Waits until the last step's updates are done on every rank.
    void settle();
    // Takes PLAN for the next steps, between steps. It must outlive the parts.
    void follow(const plan::StepPlan& plan);
    // Returns the runs of an open bucket. COUNTS: the update of this step is one more.
    [[nodiscard]] std::vector<Run> find_runs(int b, bool counts = true);
    // True if the runs have all elements of bucket B, which is being updated.
    [[nodiscard]] bool runs_cover(int b) const;
    // Returns the arrays of an update of RANGE, which PART has, but for its gradients.
    [[nodiscard]] kernels::FlatRange arrays_of(int b, const ChunkPart& part, const ChunkView& view,
                                               const Range& range) const;
    // Calls use(range, gradients, scale) for pieces of RANGE, which PART has, as
    // GradientSums::for_each_in does, for the gradients wherever they are.
    template <typename Use>
    void for_gradients(int b, const ChunkPart& part, const Range& range, const ChunkView& view,
                       Use&& use) const {
        if (view.sums == nullptr) return gradients.for_each_in(b, range, use);
        const float* const sums = view.sums + part.offset_numel + range.begin - part.range.begin;
        use(range, std::span<const float* const>(&sums, 1), 1.0F);
    }

    const graph::Model& model;
    ZeroPlace place;
    ZeroSlices slices;
    runtime::HostGroup& group;
    runtime::Collectives& collectives;
    ZeroOptions options;                     // with a rule at least
    std::vector<int64_t> slice_steps;        // updates that each trained slice has had
    std::vector<ShardOptimizer> optimizers;  // one per rule
    int64_t first_step = 0;                  // steps done before this state was made
    StateStore states;
    ParameterStore parameters;
    GradientSums gradients;
    StepNow now;
    std::vector<Run> runs;  // of the bucket that is being updated
    runtime::UpdateGuard* guard = nullptr;
    runtime::UpdateWitness* witness = nullptr;
};

}  // namespace dslaunch::zero

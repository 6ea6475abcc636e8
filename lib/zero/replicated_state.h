// ZeRO stage 0: every rank has all parameters, gradients and optimizer states. On a host the
// parameters are one shared copy, of which each local rank writes its part; gradients lie in shared
// buckets; optimizer states are each rank's own. Carries out Await, Claim, Post, Reduce,
// Accumulate, Norm and Update of the plan. Threads: claim and post by the compute lane, the rest by
// the communication lane, ordered by the plan's waits.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "graph/model.h"
#include "plan/flat_layout.h"
#include "plan/step_plan.h"
#include "runtime/comm/arena.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/host_group.h"
#include "runtime/parameter_state.h"
#include "zero/flat_optimizer_state.h"
#include "zero/gradient_collector.h"

namespace dslaunch {

// Where stage 0's buffers lie in the arena; the same on all ranks of a host.
struct ReplicatedSlices {
    SliceId parameters;
    SliceId norm_partials;
    std::vector<BucketId> buckets;
    std::vector<SignalId> updated;   // by bucket: this rank's part of the parameters is written, by
                                     // step
    std::vector<SignalId> replicas;  // by bucket: this rank needs the parameters of before the
                                     // update no more
    SignalId norm;
};

struct ReplicatedOptions {
    OptimizerConfig optimizer;
    double gradient_clipping = 0;  // 0: off
    bool fused_update = false;     // as in StepPlanOptions
    bool accumulate = false;       // reduced micro steps are added up before the update
};

class ReplicatedState final : public ParameterState {
  public:
    // Adds what stage 0 needs to ARENA.
    [[nodiscard]] static ReplicatedSlices add_slices(const FlatLayout& layout, ArenaLayout& arena);

    // Moves the model's trainable parameters into the arena: every local rank copies its part, then
    // their tensors point there. All references must outlive the state. Blocks until all ranks have
    // come.
    ReplicatedState(Model& model, const FlatLayout& layout, const ReplicatedSlices& slices,
                    const Arena& arena, HostGroup& group, Collectives& collectives,
                    const ReplicatedOptions& options);

    void begin_step(int64_t step, double lr) override;
    // Throws what Collectives throws, and Error{kDiverged} naming the first parameter whose
    // gradient is not finite.
    void run(const Instruction& instruction) override;
    [[nodiscard]] MemoryLender* gradient_memory() override { return &collector_->lender(); }
    void end_segment(int segment) override { collector_->end_segment(segment); }
    // Only with clipping.
    [[nodiscard]] std::optional<double> gradient_norm() const override { return norm_; }
    void settle() override;
    [[nodiscard]] int64_t optimizer_bytes() const override { return optimizer_->bytes(); }
    // Optimizer updates that each slice has had.
    [[nodiscard]] const std::vector<int64_t>& slice_steps() const { return slice_steps_; }

  private:
    struct Run;  // neighbouring slices that are updated alike
    void adopt_parameters(Model& model);
    [[nodiscard]] std::vector<at::Tensor> gradient_views(const Model& model) const;
    void claim(int bucket);
    void post(int bucket);
    void accumulate(int bucket);
    void compute_norm();
    [[nodiscard]] double block_squares(int bucket, const Range& range);
    void name_bad_gradient(std::span<const double> partials) const;
    void update(int bucket);
    [[nodiscard]] std::vector<Run> find_runs(int bucket, const std::vector<float>& used);
    [[nodiscard]] std::vector<float> used_slices(int bucket, const ReducedParts& parts,
                                                 const std::vector<const float*>& sources) const;
    void update_range(int bucket, const Run& run, const Range& range, bool own);
    [[nodiscard]] const Bucket& bucket(int index) const {
        return layout_.buckets[static_cast<size_t>(index)];
    }
    [[nodiscard]] Range own_part(int bucket) const;

    const Model& model_;
    const FlatLayout& layout_;
    ReplicatedSlices slices_;
    const Arena& arena_;
    HostGroup& group_;
    Collectives& collectives_;
    ReplicatedOptions options_;
    std::span<float> parameters_;  // [layout.numel], shared
    // Made once the tensors that the archive was loaded into have given their memory back.
    std::optional<FlatOptimizerState> optimizer_;
    std::unique_ptr<GradientCollector> collector_;
    std::vector<float> accumulated_;       // [layout.numel] when micro steps are added up
    std::vector<Generation> generations_;  // of each bucket's gradients
    std::vector<ReducedParts> reduced_;    // views between reduction and release
    std::vector<std::vector<const float*>> sources_;
    std::vector<std::vector<float>> used_;  // by bucket, accumulated over micro steps
    std::vector<int64_t> slice_steps_;
    std::vector<float> block_;  // scratch for a norm block that spans two parts
    int64_t step_ = 0;
    double lr_ = 0;
    float clip_factor_ = 1;
    std::optional<double> norm_;
};

}  // namespace dslaunch

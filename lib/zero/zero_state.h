// The parameters, gradients and optimizer states of one rank at ZeRO stages 0 to 3, in fp32 or with
// 16-bit parameters and fp32 master copies. The state carries out every instruction of the plan
// that is not the segment runner's. Data path: step plan -> executor -> ZeRO state -> parameter
// store, state store, gradient sums, flat optimizer. Threads: the compute lane runs Await, Claim,
// Post and Release, the read and write lanes Read and Write, the communication lane the rest. The
// plan's waits order them.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "config/run/run_config.h"
#include "graph/archive/model.h"
#include "kernels/one_bit.h"
#include "plan/step/step_plan.h"
#include "runtime/state/parameter_state.h"
#include "runtime/state/update_witness.h"
#include "zero/exchange/compressed_exchange.h"
#include "zero/gradients/chunk_norm.h"
#include "zero/gradients/gradient_norm.h"
#include "zero/gradients/gradient_sums.h"
#include "zero/parameters/parameter_store.h"
#include "zero/states/lagging_rest.h"
#include "zero/states/shard_map.h"
#include "zero/states/shard_optimizer.h"
#include "zero/states/state_store.h"
#include "zero/states/tensor_optimizer.h"
#include "zero/states/tensor_states.h"
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

class ZeroState final : public runtime::ParameterState {
  public:
    // Adds the slices that the state needs to ARENA.
    [[nodiscard]] static ZeroSlices add_slices(const ZeroPlace& place, DType dtype,
                                               runtime::ArenaLayout& arena);

    // Moves the model's parameters into the arena, and the offloaded ones to OFFLOAD. Its buffers
    // are on the device already. All references must outlive the state. Blocks until all ranks have
    // come.
    ZeroState(graph::Model& model, const ZeroPlace& place, const ZeroSlices& slices,
              const runtime::Arena& arena, runtime::HostGroup& group,
              runtime::Collectives& collectives, const ZeroOptions& options,
              OffloadFile* offload = nullptr);

    void begin_step(const runtime::StepSettings& settings) override;
    // Throws what Collectives throws, and Error{kDiverged} naming the first parameter whose
    // gradient is not finite.
    void run(const plan::Instruction& instruction) override;
    [[nodiscard]] runtime::MemoryLender* gradient_memory() override { return gradients_->memory(); }
    void begin_backward(int micro_step) override { gradients_->begin_backward(micro_step); }
    void end_segment(int segment) override { gradients_->end_segment(segment); }
    [[nodiscard]] std::span<float> tied_gradients(int bucket) override;
    // The norm exists only if Norm ran: with clipping or with a loss scale.
    [[nodiscard]] std::optional<double> gradient_norm() const override { return norm_value_; }
    [[nodiscard]] std::optional<runtime::Overflow> overflow() const override { return overflow_; }
    void change_plan(const plan::StepPlan& plan) override;
    void meet() override;
    void set_witness(runtime::UpdateWitness* witness) override { witness_ = witness; }
    void settle() override;
    void hold(std::span<const int> parameters, bool keep) override;
    void let_go() override { parameters_->let_go(); }
    // REQUIRES: what it writes is in memory, and no tensor group splits it.
    void rewrite(std::span<const int> read, std::span<const int> written,
                 const NewValues& use) override;
    [[nodiscard]] bool is_sharded() const override;
    [[nodiscard]] std::vector<int> parameters_elsewhere() const override;
    void bring_weights(const UseWeights& use) override;
    [[nodiscard]] std::vector<runtime::SavedPiece> saved_pieces() override;
    void bring_saved(int chunk, const UsePieces& use) override;
    [[nodiscard]] std::vector<std::string> further_states() const override;
    [[nodiscard]] std::vector<int64_t> state_numel(const at::Tensor& parameter) const override;
    [[nodiscard]] bool values_on_host() const override { return device().is_host(); }
    void copy_values(std::span<std::byte> into, const std::byte* values) override;
    void set_guard(runtime::UpdateGuard* guard) override { guard_ = guard; }
    [[nodiscard]] std::optional<int64_t> updates_of(int parameter) const override;
    [[nodiscard]] at::Tensor untrained_values(int parameter) const override;
    [[nodiscard]] runtime::MemoryAccount memory() const override;
    [[nodiscard]] std::optional<runtime::DiskTraffic> disk_traffic() const override;
    [[nodiscard]] std::vector<std::string> summary() const override;
    // The number of optimizer updates that each slice has had.
    [[nodiscard]] const std::vector<int64_t>& slice_steps() const { return slice_steps_; }

  private:
    // Neighbouring slices of a bucket that got a gradient, follow the same rule and have had
    // equally many updates. Just one if the rule needs whole tensors.
    struct Run {
        Range range;  // within the bucket
        int64_t step = 1;
        int rule = 0;
        int slice = -1;  // the first
    };
    [[nodiscard]] const UpdateRule& rule(const Run& run) const {
        return options_.rules.rules[static_cast<size_t>(run.rule)];
    }
    [[nodiscard]] double rate(const Run& run) const { return settings_.lr * rule(run).lr_scale; }
    [[nodiscard]] int64_t whole_tensor_numel_max() const;
    [[nodiscard]] bool half() const { return options_.dtype != DType::kF32; }
    // 16-bit parameters are all there is.
    [[nodiscard]] bool without_masters() const { return half() && !place_.plan_options->master; }
    [[nodiscard]] std::vector<at::Tensor> whole_values(std::span<const int> parameters);
    void store_values(int parameter, const at::Tensor& values);
    void store_elements(int bucket, const Range& range, const float* values);
    void widen(int bucket, const ChunkPart& part, float* into) const;
    void copy_weights(int bucket, float* base);
    void post(int bucket);
    void look_for_overflow(int bucket);
    void accumulate(const plan::Instruction& instruction);
    [[nodiscard]] std::vector<double> block_squares();
    [[nodiscard]] int first_bad_parameter();
    void compute_norm();
    void note_overflow(int bad_parameter);
    void update(const plan::Instruction& instruction);
    void update_chunk(const plan::Instruction& instruction);
    // True if updates read parameters that other ranks write.
    [[nodiscard]] bool reads_replicas() const {
        return place_.map->stage() == 0 && !half() && options_.optimizer.decays_gradient();
    }
    void await_replicas(int bucket);
    [[nodiscard]] std::vector<Run> find_runs(int bucket, bool counts = true);
    void select();
    void add_squares_in_order();
    void update_lagging_chunk(const plan::Instruction& instruction);
    void update_rest_late(const plan::Instruction& instruction);
    void count_waiting(bool finite);
    void await_landing(int b);
    void meet(int b, uint32_t generation);
    void land(int bucket);
    [[nodiscard]] kernels::FlatRange arrays_of_span(int c, const LagSpan& span,
                                                    const ChunkView& view);
    [[nodiscard]] kernels::AdamStep step_of(const LagSpan& span, int64_t steps) const;
    void add_update(int c, const LagSpan& span, const ChunkView& view);
    void take_gradients(int c, const LagSpan& span, const ChunkView& view, const float* gradients,
                        float scale);
    void follow_plan();
    void settle_rates();
    void begin_alone();
    void exchange(const plan::Instruction& instruction);
    void allow_changes(int bucket);
    [[nodiscard]] int error_unit(int bucket) const;
    void fill_values(int bucket, const ChunkPart& part, const Range& range, const ChunkView& view,
                     std::span<float> values);
    void step_alone(int bucket, const ChunkPart& part, const Range& range, const ChunkView& view);
    [[nodiscard]] kernels::LocalMoves moves_of(int bucket, const ChunkPart& part,
                                               const kernels::FlatRange& arrays,
                                               const Range& range);
    void take_average(int bucket, const ChunkPart& part, const Range& range, const ChunkView& view);
    template <typename Fill>
    void exchange_bucket(int bucket, Fill&& fill);
    void give_moves(int bucket, const ChunkPart& part, const Range& range, const ChunkView& view,
                    std::span<float> values);
    void take_moves(int bucket, const ChunkPart& part, const Range& range, const ChunkView& view,
                    std::span<const float> averaged, double rates);
    void meet_in(int bucket);
    [[nodiscard]] Bytes compression_bytes() const;
    [[nodiscard]] kernels::FlatRange arrays_of(int bucket, const ChunkPart& part,
                                               const ChunkView& view, const Range& range) const;
    // Calls use(range, gradients, scale) for pieces of RANGE, which PART has, as
    // GradientSums::for_each_in does, for the gradients wherever they are.
    template <typename Use>
    void for_gradients(int bucket, const ChunkPart& part, const Range& range, const ChunkView& view,
                       Use&& use) const;
    [[nodiscard]] static bool covers(std::span<const Run> runs, int64_t numel);
    void hand_over(int bucket, std::span<const float> values, const UseWeights& use) const;
    void bring_fp32(const UseWeights& use);
    [[nodiscard]] device::Device& device() const { return *place_.device.device; }
    [[nodiscard]] device::Queue& queue() const { return device().communication(); }
    void update_part(const plan::Instruction& instruction, const ChunkPart& part, const Run& run,
                     const ChunkView& view);
    void update_tensor(const plan::Instruction& instruction, const ChunkPart& part, const Run& run,
                       const ChunkView& view);
    // An update of RANGE of a bucket, before it or DONE.
    struct ShownUpdate {
        const kernels::FlatRange& update;
        Range range;
        float mean_scale;  // without the clip factor
        const Run& run;
        bool done;
    };
    void show(const plan::Instruction& instruction, const ShownUpdate& shown);
    void start_moments(runtime::SavedState* saved);
    // Calls use(slice, its elements, where they begin in RANGE) for every slice that overlaps RANGE
    // of a bucket. Padding is skipped.
    template <typename Use>
    void for_each_slice(int bucket, const Range& range, Use&& use) const;
    [[nodiscard]] std::vector<int> chunks_by_update() const;
    [[nodiscard]] std::vector<runtime::SavedPiece> in_whole(
        std::vector<runtime::SavedPiece> pieces) const;
    void add_pieces(int chunk, const ChunkView* view, std::vector<runtime::SavedPiece>& pieces);
    [[nodiscard]] const plan::Bucket& bucket(int b) const { return place_.layout->buckets[b]; }

    const graph::Model& model_;
    ZeroPlace place_;
    ZeroSlices slices_;
    runtime::HostGroup& group_;
    runtime::Collectives& collectives_;
    ZeroOptions options_;
    OffloadFile* offload_;  // null: nothing is on disk
    std::optional<StateStore> states_;
    std::vector<ShardOptimizer> optimizers_;  // one per rule
    std::optional<TensorOptimizer> tensor_optimizer_;
    std::optional<TensorStates> tensor_states_;
    std::optional<ParameterStore> parameters_;
    std::optional<GradientSums> gradients_;
    std::optional<GradientNorm> norm_;
    std::optional<ChunkNorm> chunk_norm_;  // present if the norm is needed and reduced gradients
                                           // are kept
    runtime::UpdateGuard* guard_ = nullptr;
    runtime::UpdateWitness* witness_ = nullptr;
    std::vector<int64_t> slice_steps_;
    std::vector<Run> runs_;                       // runs of the bucket that is being updated
    std::optional<CompressedExchange> exchange_;  // present if hosts compress what they exchange
    std::optional<LaggingRest> lagging_;          // present if updates may lag
    int64_t waited_ = 0;      // steps whose gradients wait besides those of this step
    std::vector<char> used_;  // by slice of the bucket that is being updated
    std::vector<kernels::AdamUpdate> updates_;  // of the chunk that is being updated
    std::vector<const float*> sources_;         // their gradients
    // 0/1 Adam's parameters when the hosts met last, by trained bucket and piece; none before hosts
    // first step alone. And the sum of the learning rates since then.
    std::vector<std::vector<ZeroedFloats>> meeting_;
    double rates_since_ = 0;
    // The exchange of the last step, until its rate is counted.
    plan::Exchange last_exchange_ = plan::Exchange::kExact;
    int64_t step_ = 0;        // steps since this state was made
    int64_t first_step_ = 0;  // steps done before this state was made
    runtime::StepSettings settings_;
    float clip_factor_ = 1;  // includes the factor 1 / loss scale
    std::optional<double> norm_value_;
    std::optional<runtime::Overflow> overflow_;
    // One per trained slice, on the device: 1 if this rank's own gradient was not finite in this
    // step. Empty unless a step may be skipped.
    device::Memory nonfinite_;
    std::mutex copies_mutex_;  // guards the device's queue of copies
};

template <typename Use>
void ZeroState::for_gradients(int b, const ChunkPart& part, const Range& range,
                              const ChunkView& view, Use&& use) const {
    if (view.sums == nullptr) return gradients_->for_each_in(b, range, use);
    const float* const sums = view.sums + part.offset_numel + range.begin - part.range.begin;
    use(range, std::span<const float* const>(&sums, 1), 1.0F);
}

template <typename Use>
void ZeroState::for_each_slice(int b, const Range& range, Use&& use) const {
    for (int i = bucket(b).first_slice; i < bucket(b).end_slice; ++i) {
        const plan::ParameterSlice& slice = place_.layout->slices[i];
        const int64_t begin = slice.offset_numel - bucket(b).offset_numel;
        const Range both = intersect(range, {begin, slice.numel});
        if (both.numel > 0) use(i, Range{both.begin - begin, both.numel}, both.begin - range.begin);
    }
}

}  // namespace dslaunch::zero

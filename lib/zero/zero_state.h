// The parameters, gradients and optimizer states of one rank at ZeRO stages 0 to 3, in fp32 or with
// 16-bit parameters and fp32 master copies. The state and its parts carry out every instruction of
// the plan that the segment runner does not. Data path: step plan -> executor -> ZeRO state ->
// parameter store, state store, gradient sums, update paths. Threads: the compute lane runs Await,
// Claim, Post and Release, the read and write lanes run Read and Write, the communication lane runs
// the rest. The plan's waits order them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "zero/saving/state_values.h"
#include "zero/update/averaged_path.h"
#include "zero/update/elementwise_path.h"
#include "zero/update/lagging_path.h"
#include "zero/update/step_norm.h"
#include "zero/update/tensor_path.h"

namespace dslaunch::zero {

// The state of one rank; see the top of this file.
class ZeroState final : public StateValues {
  public:
    // Adds to ARENA the slices that the state needs.
    [[nodiscard]] static ZeroSlices add_slices(const ZeroPlace& place, DType dtype,
                                               runtime::ArenaLayout& arena);

    // Moves the model's parameters into the arena, or into OFFLOAD if they are offloaded. REQUIRES:
    // the model's buffers are on the device already. All references must outlive the state. Blocks
    // until all ranks have called it.
    ZeroState(graph::Model& model, const ZeroPlace& place, const ZeroSlices& slices,
              const runtime::Arena& arena, runtime::HostGroup& group,
              runtime::Collectives& collectives, const ZeroOptions& options,
              OffloadFile* offload = nullptr);

    void begin_step(const runtime::StepSettings& settings) override;
    // Carries out INSTRUCTION. Throws the errors of Collectives, and Error{kDiverged}, naming the
    // first parameter whose gradient is not finite.
    void run(const plan::Instruction& instruction) override;
    [[nodiscard]] runtime::MemoryLender* gradient_memory() override {
        return parts_.gradients().memory();
    }
    void begin_backward(int micro_step) override { parts_.gradients().begin_backward(micro_step); }
    void end_segment(int segment) override { parts_.gradients().end_segment(segment); }
    [[nodiscard]] std::span<float> tied_gradients(int bucket) override;
    // Returns the norm only if the plan runs Norm: with gradient clipping or with a loss scale.
    [[nodiscard]] std::optional<double> gradient_norm() const override { return norm_.value(); }
    [[nodiscard]] std::optional<runtime::Overflow> overflow() const override {
        return parts_.now().overflow;
    }
    void change_plan(const plan::StepPlan& plan) override;
    void meet() override {
        for (UpdatePath* path : paths_) path->meet();
    }
    void set_witness(runtime::UpdateWitness* witness) override { parts_.set_witness(witness); }
    void settle() override { parts_.settle(); }

    void hold(std::span<const int> parameters, bool keep) override {
        parts_.parameters().hold(parameters, parts_.now().number, keep);
    }
    void let_go() override { parts_.parameters().let_go(); }
    [[nodiscard]] bool is_sharded() const override;

    [[nodiscard]] runtime::MemoryAccount memory() const override;
    [[nodiscard]] std::optional<runtime::DiskTraffic> disk_traffic() const override;
    [[nodiscard]] std::vector<std::string> summary() const override {
        return parts_.states().describe_packing();
    }

  private:
    void choose_paths();
    void accumulate(const plan::Instruction& instruction);
    void update(const plan::Instruction& instruction);
    void update_chunk(const plan::Instruction& instruction);

    OffloadFile* offload_;  // null: nothing is on disk
    StepNorm norm_;
    ElementwisePath elementwise_;
    std::unique_ptr<AveragedPath> averaged_;  // null unless hosts compress their exchange
    TensorPath tensors_;
    std::unique_ptr<LaggingPath> lagging_;  // null unless updates may lag
    std::vector<UpdatePath*> active_;       // the paths that the plan uses
};

}  // namespace dslaunch::zero

// ZeRO stage 0 on a GPU: this rank has all parameters, gradients and optimizer states in flat
// buffers of its device. The state carries out Claim, Post, Reduce, Accumulate, Norm and Update of
// a device plan (plan/step/device_plan.h) by putting work on the device's streams, which the
// executor orders. The ranks agree over the CPU's collectives on which parameters got a gradient,
// so nothing is read back from the device for it. Threads: the communication lane runs Reduce, the
// compute lane all else.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "config/run/run_config.h"
#include "graph/archive/model.h"
#include "plan/layout/flat_layout.h"
#include "plan/step/step_plan.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/device_backend.h"
#include "runtime/save/saved_state.h"
#include "runtime/state/parameter_state.h"
#include "zero/gradients/gradient_collector.h"

namespace dslaunch::zero {

struct DeviceStateOptions {
    config::OptimizerConfig optimizer;
    double gradient_clipping = 0;  // 0: off
    bool accumulate = false;       // reduced micro steps are added up before the update
    // True if a branch or loop of the model may leave a parameter out in one step and not in
    // another. The ranks then tell each other in every step, otherwise only in the first.
    bool usage_varies = true;
    Duration time_limit = std::chrono::minutes(5);  // limit of joining
    // The state to resume from, needed until the device state is made.
    runtime::SavedState* saved = nullptr;
};

class DeviceState final : public runtime::ParameterState {
  public:
    // Moves the model's trainable parameters, which lie on BACKEND's device, into one flat buffer
    // with rank 0's values. Joins BACKEND's group in a world of several ranks: blocks until all
    // have come. All references must outlive the state. Throws Error{kInput} when nothing can
    // be trained or a parameter is not fp32, and what BACKEND throws.
    DeviceState(graph::Model& model, const plan::FlatLayout& layout,
                runtime::DeviceBackend& backend, runtime::Collectives& collectives,
                const DeviceStateOptions& options);

    void begin_step(const runtime::StepSettings& settings) override;
    void run(const plan::Instruction& instruction) override;
    void end_segment(int segment) override { collector_->end_segment(segment); }
    // Reads the norm. With clipping, throws Error{kDiverged} naming the first parameter whose
    // gradient is not finite. Its update then changed nothing, except SGD's.
    void finish_step() override;
    // The norm exists only with clipping.
    [[nodiscard]] std::optional<double> gradient_norm() const override { return norm_; }
    // Nothing is to be waited for: parameters are read on the compute stream, behind the updates.
    void settle() override {}
    // Copies this rank's part to the CPU, where it stays until the next call.
    [[nodiscard]] std::vector<runtime::SavedPiece> saved_pieces() override;
    [[nodiscard]] std::optional<int64_t> updates_of(int parameter) const override;
    [[nodiscard]] at::Tensor untrained_values(int parameter) const override;
    [[nodiscard]] runtime::MemoryAccount memory() const override;
    // The number of optimizer updates that each slice has had.
    [[nodiscard]] const std::vector<int64_t>& slice_steps() const { return slice_steps_; }

  private:
    struct Run;  // neighbouring slices that are updated alike
    void join();
    void adopt_parameters(graph::Model& model);
    void resume_from(runtime::SavedState& saved);
    [[nodiscard]] at::Tensor view_of(const at::Tensor& flat,
                                     const plan::ParameterSlice& slice) const;
    void post(int bucket);
    void reduce(int bucket);
    void accumulate(int bucket);
    void compute_norm();
    void update(int bucket);
    void agree_on_usage();
    [[nodiscard]] std::vector<Run> find_runs(const plan::Bucket& bucket);
    void update_run(const Run& run);
    void adam(const Run& run);
    void sgd(const Run& run);
    void adagrad(const Run& run);
    void lion(const Run& run);
    [[nodiscard]] at::Tensor part(const at::Tensor& flat, const Run& run) const;
    [[nodiscard]] at::Tensor gradient_of(const Run& run) const;
    void name_bad_gradient() const;
    [[nodiscard]] at::Tensor part(const at::Tensor& flat, const plan::Bucket& bucket) const;
    [[nodiscard]] const plan::Bucket& bucket(int index) const { return layout_.buckets[index]; }
    [[nodiscard]] const at::Tensor& summed() const {
        return options_.accumulate ? accumulated_ : gradients_;
    }

    const graph::Model& model_;
    const plan::FlatLayout& layout_;
    runtime::DeviceBackend& backend_;
    runtime::Collectives& collectives_;
    DeviceStateOptions options_;
    // Flat buffers on the device, [layout.numel] fp32, zero between the slices.
    at::Tensor parameters_;
    at::Tensor gradients_;
    at::Tensor accumulated_;  // defined if micro steps are added up
    at::Tensor first_;        // Adam's, Lion's and SGD's momentum, Adagrad's sum of squares
    at::Tensor second_;       // Adam's variance
    // Scalars on the device, [1] fp32, made anew by each Norm.
    at::Tensor norm_on_device_;
    at::Tensor divisor_;
    at::Tensor skip_;
    std::vector<at::Tensor> on_cpu_;  // values that saved_pieces() copied
    std::unique_ptr<GradientCollector> collector_;
    std::vector<char> accumulates_;  // one per bucket, 1 if a micro step of this step was added up
    std::vector<double> used_;  // one per slice, above 0 if this rank had a gradient in this step
    std::vector<double> used_before_;  // used_ of the first step
    std::vector<double> ranks_used_;   // one per slice, the number of ranks that had a gradient
    std::vector<int64_t> slice_steps_;
    bool usage_known_ = false;  // true once the ranks agreed in this step
    int64_t step_ = 0;
    double lr_ = 0;
    std::optional<double> norm_;
};

}  // namespace dslaunch::zero

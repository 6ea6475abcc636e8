#include "graph/measure/trial.h"

#include <ATen/ops/zeros_like.h>
#include <c10/core/Allocator.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "graph/segment/compute_context.h"
#include "plan/model/model_info.h"

namespace dslaunch::graph {

class TensorMeter::Report final : public c10::MemoryReportingInfoBase {
  public:
    explicit Report(c10::DeviceType device) : device_(device) {}
    // Tensors made before the meter are not reported when they are freed.
    void reportMemoryUsage(void* /*memory*/, int64_t change, size_t /*allocated*/,
                           size_t /*reserved*/, c10::Device device) override {
        if (device.type() != device_) return;
        const bool is_large =
            change >= plan::kLargeBlock.value || -change >= plan::kLargeBlock.value;
        (is_large ? live.large_bytes : live.small_bytes) += change;
        peak.small_bytes = std::max(peak.small_bytes, live.small_bytes);
        peak.large_bytes = std::max(peak.large_bytes, live.large_bytes);
    }
    [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

    Counts live;
    Counts peak;

  private:
    c10::DeviceType device_;
};

TensorMeter::TensorMeter(c10::DeviceType device)
    : report_(std::make_shared<Report>(device)),
      guard_(c10::DebugInfoKind::PROFILER_STATE, report_) {}

TensorMeter::~TensorMeter() = default;

TensorMeter::Counts TensorMeter::live() const {
    return report_->live;
}

TensorMeter::Counts TensorMeter::peak() const {
    return report_->peak;
}

void TensorMeter::restart_peak() {
    report_->peak = report_->live;
}

namespace {

class LetGo final : public torch::autograd::PostAccumulateGradHook {
  public:
    void operator()(const torch::autograd::Variable& parameter) override {
        parameter.mutable_grad().reset();
    }
};

class HookScope {
  public:
    HookScope(const Model& model, std::span<const int> parameters) {
        for (const int parameter : parameters) {
            const at::Tensor& tensor = model.parameters()[parameter].tensor;
            if (!tensor.requires_grad()) continue;
            torch::autograd::impl::set_post_acc_grad_hooks(tensor, std::make_unique<LetGo>());
            hooked_.push_back(tensor);
        }
    }
    HookScope(const HookScope&) = delete;
    HookScope& operator=(const HookScope&) = delete;
    ~HookScope() {
        for (const at::Tensor& tensor : hooked_)
            torch::autograd::impl::set_post_acc_grad_hooks(tensor, nullptr);
    }

  private:
    std::vector<at::Tensor> hooked_;
};

}  // namespace

std::vector<at::Tensor> leaves_in(const std::vector<IValue>& inputs) {
    std::vector<at::Tensor> leaves;
    for (const IValue& input : inputs)
        for_each_tensor(input, [&](const at::Tensor& tensor) {
            const bool again = std::ranges::any_of(
                leaves, [&](const at::Tensor& leaf) { return leaf.is_same(tensor); });
            if (tensor.requires_grad() && !again) leaves.push_back(tensor);
        });
    return leaves;
}

void TrialBackward::run(Boundary boundary) const {
    const HookScope hooks(model, parameters);
    const std::vector<at::Tensor> leaves = leaves_in(inputs);
    if (!last)
        for (const at::Tensor& leaf : boundary.leaves) leaf.mutable_grad() = at::zeros_like(leaf);
    if (between) {
        WeightHalf half = last ? SegmentedModel::backward_loss_inputs(boundary, 0, leaves)
                               : SegmentedModel::backward_inputs(boundary, leaves);
        Bytes gradients;
        for (const at::Tensor& leaf : leaves)
            if (leaf.grad().defined())
                gradients += Bytes{static_cast<int64_t>(leaf.grad().nbytes())};
        between(gradients);
        const BackwardContext context;
        half.run();
    } else if (last) {
        SegmentedModel::backward_loss(boundary, 0);
    } else {
        SegmentedModel::backward(boundary);
    }
    for (const at::Tensor& leaf : leaves) leaf.mutable_grad().reset();
}

}  // namespace dslaunch::graph

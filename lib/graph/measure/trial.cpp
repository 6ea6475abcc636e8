#include "graph/measure/trial.h"

#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "graph/segment/compute_context.h"

namespace dslaunch::graph {

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
    if (!is_last)
        for (const at::Tensor& leaf : boundary.leaves) leaf.mutable_grad() = at::zeros_like(leaf);
    if (between) {
        WeightHalf half = is_last ? SegmentedModel::backward_loss_inputs(boundary, 0, leaves)
                                  : SegmentedModel::backward_inputs(boundary, leaves);
        Bytes gradients;
        for (const at::Tensor& leaf : leaves)
            if (leaf.grad().defined())
                gradients += Bytes{static_cast<int64_t>(leaf.grad().nbytes())};
        between(gradients);
        const BackwardContext context;
        half.run();
    } else if (is_last) {
        SegmentedModel::backward_loss(boundary, 0);
    } else {
        SegmentedModel::backward(boundary);
    }
    for (const at::Tensor& leaf : leaves) leaf.mutable_grad().reset();
}

}  // namespace dslaunch::graph

#include "graph/trial_backward.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>

namespace dslaunch {

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
            const at::Tensor& tensor = model.parameters()[static_cast<size_t>(parameter)].tensor;
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

void trial_backward(const Model& model, std::span<const int> parameters, Boundary boundary,
                    bool last, const std::vector<c10::IValue>& inputs) {
    const HookScope hooks(model, parameters);
    if (last) {
        SegmentedModel::backward_loss(boundary, 0);
    } else {
        for (const at::Tensor& leaf : boundary.leaves) leaf.mutable_grad() = at::zeros_like(leaf);
        SegmentedModel::backward(boundary);
    }
    for (const c10::IValue& input : inputs) {
        static_cast<void>(map_tensors(input, [](const at::Tensor& tensor) {
            if (tensor.is_leaf()) tensor.mutable_grad().reset();
            return tensor;
        }));
    }
}

}  // namespace dslaunch

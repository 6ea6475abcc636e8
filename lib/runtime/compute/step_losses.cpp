#include "runtime/compute/step_losses.h"

#include <ATen/ops/stack.h>
#include <c10/core/ScalarType.h>

#include <cmath>

#include "base/error.h"

namespace dslaunch::runtime {

void StepLosses::begin(int64_t step, std::vector<char> empty) {
    step_ = step;
    empty_ = std::move(empty);
    values_.clear();
    unread_.clear();
    rewards_.clear();
}

void StepLosses::add(double loss) {
    // The mean over no targets is NaN, but its gradients are 0: it counts as a loss of 0.
    if (values_.size() < empty_.size() && empty_[values_.size()] != 0) loss = 0;
    if (stops_on_nonfinite_ && !std::isfinite(loss))
        fail(ExitCode::kDiverged,
             "the loss of step {}, micro step {} is {}: training has diverged; lower the learning "
             "rate, clip gradients (gradient_clipping), or check the data of this step{}",
             step_ + 1, values_.size(), loss,
             !knows_targets_ && std::isnan(loss) ? " (a mean over no targets is NaN too)" : "");
    values_.push_back(loss);
}

const std::vector<double>& StepLosses::values() {
    if (unread_.empty()) return values_;
    const at::Tensor all = at::stack(std::exchange(unread_, {})).to(at::kCPU, at::kDouble);
    for (int64_t m = 0; m < all.numel(); ++m) add(all.const_data_ptr<double>()[m]);
    return values_;
}

std::optional<graph::RewardMeans> StepLosses::rewards() const {
    if (rewards_.empty()) return std::nullopt;
    graph::RewardMeans means;
    for (const at::Tensor& rewards : rewards_)
        means.add(graph::reward_means(rewards), 1.0 / static_cast<double>(rewards_.size()));
    return means;
}

}  // namespace dslaunch::runtime

#include "zero/gradients/gradient_collector.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "base/check.h"

namespace dslaunch::zero {

class GradientCollector::Hook final : public torch::autograd::PostAccumulateGradHook {
  public:
    Hook(GradientCollector& collector, size_t slice) : collector_(collector), slice_(slice) {}

    void operator()(const torch::autograd::Variable& parameter) override {
        at::Tensor gradient = std::move(parameter.mutable_grad());
        parameter.mutable_grad().reset();
        // Autograd calls the hook even if a node returns no gradient. The gradient is then
        // undefined.
        if (gradient.defined()) collector_.receive(slice_, std::move(gradient));
    }

  private:
    GradientCollector& collector_;
    size_t slice_;
};

GradientCollector::GradientCollector(const graph::Model& model, const plan::FlatLayout& layout,
                                     std::vector<at::Tensor> views)
    : model_(model), layout_(layout) {
    DSL_CHECK(std::ssize(views) == layout.trained_slices, "there are {} views for {} slices",
              views.size(), layout.trained_slices);
    for (size_t i = 0; i < views.size(); ++i) {
        const plan::ParameterSlice& slice = layout.slices[i];
        slices_.push_back(
            {views[i], {}, slice.first_segment != slice.last_segment, slice.over_parts});
        const at::Tensor& parameter = model.parameters()[slice.parameter].tensor;
        lender_.add_slice(parameter, views[i]);
        torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Hook>(*this, i));
    }
}

GradientCollector::~GradientCollector() {
    for (size_t i = 0; i < slices_.size(); ++i)
        torch::autograd::impl::set_post_acc_grad_hooks(
            model_.parameters()[layout_.slices[i].parameter].tensor, nullptr);
}

void GradientCollector::claim(const plan::Bucket& bucket) {
    for (auto i = static_cast<size_t>(bucket.first_slice);
         i < static_cast<size_t>(bucket.end_slice); ++i) {
        slices_[i].fresh = true;
        if (slices_[i].over_parts) continue;
        slices_[i].in_place = true;
        if (!slices_[i].scratch.defined()) lender_.open(i);
    }
}

void GradientCollector::add(size_t index, const at::Tensor& gradient) {
    Slice& slice = slices_[index];
    DSL_CHECK(!lender_.is_out(index),
              "a gradient is written to memory that is lent to another tensor");
    if (slice.fresh) {
        slice.view.copy_(gradient);
    } else {
        slice.view.add_(gradient);
    }
    slice.fresh = false;
    lender_.close(index);
    copied_bytes_ += static_cast<int64_t>(slice.view.nbytes());
}

// Returns true if GRADIENT may be added to SLICE at once, and false if it must wait for the end of
// the segment. If several segments use the parameter, GRADIENT must have the slice's dtype, because
// autograd would sum the gradients in their own dtype.
bool GradientCollector::adds_at_once(const Slice& slice, const at::Tensor& gradient) {
    return slice.in_place &&
           (!slice.shared_by_segments || gradient.scalar_type() == slice.view.scalar_type());
}

void GradientCollector::wait_for_turn(Slice& slice, at::Tensor gradient) {
    at::Tensor& sum = slice.waiting[micro_step_];
    if (sum.defined()) {
        sum.add_(gradient);
    } else {
        sum = std::move(gradient);
    }
}

void GradientCollector::receive(size_t index, at::Tensor gradient) {
    const at::NoGradGuard no_grad;
    Slice& slice = slices_[index];
    const GradientLender::Arrival arrival = lender_.arrive(index, gradient);
    if (slice.over_parts) return wait_for_turn(slice, std::move(gradient));
    if (arrival == GradientLender::Arrival::kInPlace) {
        slice.fresh = false;
        lender_.close(index);
    } else if (slice.scratch.defined()) {
        slice.scratch.add_(gradient);
    } else if (arrival == GradientLender::Arrival::kElsewhere && adds_at_once(slice, gradient)) {
        add(index, gradient);
    } else {
        slice.scratch = std::move(gradient);
    }
}

void GradientCollector::end_segment(int segment) {
    const at::NoGradGuard no_grad;
    lender_.end_backward();
    for (size_t i = 0; i < slices_.size(); ++i) {
        Slice& slice = slices_[i];
        if (layout_.slices[i].first_segment != segment) continue;
        // No later segment of this micro step uses the parameter.
        if (slice.shared_by_segments) slice.in_place = false;
        if (const auto sum = slice.waiting.find(micro_step_); sum != slice.waiting.end()) {
            add(i, sum->second);
            slice.waiting.erase(sum);
        }
        if (!slice.scratch.defined()) continue;
        add(i, slice.scratch);
        slice.scratch.reset();
    }
}

void GradientCollector::complete(const plan::Bucket& bucket, std::span<float> used) {
    const at::NoGradGuard no_grad;
    for (int i = bucket.first_slice; i < bucket.end_slice; ++i) {
        Slice& slice = slices_[i];
        DSL_CHECK(!lender_.is_out(static_cast<size_t>(i)),
                  "a complete bucket still has memory that is lent to a tensor");
        lender_.close(static_cast<size_t>(i));
        if (slice.fresh) slice.view.zero_();
        used[i - bucket.first_slice] = slice.fresh ? 0.0F : 1.0F;
    }
}

}  // namespace dslaunch::zero

#include "runtime/segment_runner.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "graph/compute_context.h"
#include "graph/device_rewrite.h"
#include "runtime/lending_allocator.h"

namespace dslaunch {

using c10::IValue;

namespace {

// A segment that is run again would move its buffers twice (BatchNorm's averages); this puts them
// back.
class BufferKeeper {
  public:
    BufferKeeper(const SegmentedModel& model, const Segment& segment)
        : model_(model), segment_(segment) {
        for (const int buffer : segment.buffers) before_.push_back(tensor(buffer).clone());
    }
    BufferKeeper(const BufferKeeper&) = delete;
    BufferKeeper& operator=(const BufferKeeper&) = delete;
    ~BufferKeeper() {
        const at::NoGradGuard no_grad;
        // Through data(): autograd has just saved some of them and must not take them as
        // overwritten.
        for (size_t i = 0; i < before_.size(); ++i)
            tensor(segment_.buffers[i]).data().copy_(before_[i]);
    }

  private:
    [[nodiscard]] at::Tensor tensor(int buffer) const {
        return model_.model().buffers()[static_cast<size_t>(buffer)].tensor;
    }

    const SegmentedModel& model_;
    const Segment& segment_;
    std::vector<at::Tensor> before_;
};

std::vector<IValue> copied(const std::vector<IValue>& values) {
    std::vector<IValue> copies;
    for (const IValue& value : values)
        copies.push_back(
            map_tensors(value, [](const at::Tensor& tensor) { return tensor.clone(); }));
    return copies;
}

at::Tensor buffer_of(const SegmentedModel& model, size_t segment, size_t index) {
    const int buffer = model.segments()[segment].buffers[index];
    return model.model().buffers()[static_cast<size_t>(buffer)].tensor;
}

std::vector<at::Tensor> copied_buffers(const SegmentedModel& model, size_t segment) {
    std::vector<at::Tensor> copies;
    for (size_t i = 0; i < model.segments()[segment].buffers.size(); ++i)
        copies.push_back(buffer_of(model, segment, i).clone());
    return copies;
}

void put_buffers(const SegmentedModel& model, size_t segment, std::vector<at::Tensor>& values) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < values.size(); ++i) buffer_of(model, segment, i).data().copy_(values[i]);
    values.clear();
}

}  // namespace

SegmentRunner::SegmentRunner(const SegmentedModel& model, const ModelInfo& info,
                             std::vector<RecomputeGroup> groups, TakeBatch take_batch,
                             const SegmentRunnerOptions& options)
    : model_(model),
      info_(info),
      groups_(std::move(groups)),
      take_batch_(std::move(take_batch)),
      options_(options),
      held_(static_cast<size_t>(options.accumulation_steps)) {
    DSL_CHECK(in_model(count()) <= model_.segments().size(),
              "segments {} to {} of a model that has {}", options.first_segment, in_model(count()),
              model_.segments().size());
    while (last_backward_ < count() && !info_.segments[last_backward_].backward) ++last_backward_;
    if (!groups_.empty() && !model_.states().empty())
        fail(ExitCode::kInput,
             "forward writes the attribute `{}`, which activation checkpointing would write twice; "
             "switch "
             "activation_checkpointing.number_checkpoints off for this model",
             model_.states().front().path);
}

void SegmentRunner::begin_step(int64_t step, double root_scale) {
    step_ = step;
    root_scale_ = root_scale * options_.position_ranks;
    losses_.clear();
    unread_losses_.clear();
}

void SegmentRunner::add_loss(double loss) {
    if (options_.stop_on_nonfinite_loss && !std::isfinite(loss))
        fail(ExitCode::kDiverged,
             "the loss of step {}, micro step {} is {}: training has diverged; lower the "
             "learning rate, clip gradients (gradient_clipping), or look at the data of this step",
             step_ + 1, losses_.size(), loss);
    losses_.push_back(loss);
}

const std::vector<double>& SegmentRunner::losses() {
    if (unread_losses_.empty()) return losses_;
    const at::Tensor all = at::stack(std::exchange(unread_losses_, {})).to(at::kCPU, at::kDouble);
    for (int64_t m = 0; m < all.numel(); ++m) add_loss(all.const_data_ptr<double>()[m]);
    return losses_;
}

const std::vector<std::vector<IValue>>& SegmentRunner::look_ahead(int64_t step) {
    ahead_.clear();
    for (int64_t m = 0; m < options_.accumulation_steps; ++m)
        ahead_.push_back(take_batch_(step, m));
    return ahead_;
}

void SegmentRunner::run(const Instruction& instruction) {
    const auto segment = static_cast<size_t>(instruction.segment);
    const int64_t micro_step = instruction.micro_step;
    switch (instruction.op) {
        case Op::kLoad:
            return load(micro_step);
        case Op::kForward:
            return forward(segment, micro_step);
        case Op::kRecompute:
            return recompute(segment, micro_step);
        case Op::kBackward:
            return backward(segment, micro_step, /*split=*/false);
        case Op::kBackwardInput:
            return backward(segment, micro_step, /*split=*/true);
        case Op::kBackwardWeight:
            return backward_weight(segment, micro_step);
        default:
            DSL_CHECK(false, "{} is not for the segment runner", op_name(instruction.op));
    }
}

DrawKey SegmentRunner::draw_key(int64_t micro_step) const {
    return {options_.seed, step_,
            micro_step * options_.data_parallel_size + options_.data_parallel_rank};
}

const RecomputeGroup* SegmentRunner::group_of(size_t segment) const {
    for (const RecomputeGroup& group : groups_)
        if (segment >= static_cast<size_t>(group.begin) && segment < static_cast<size_t>(group.end))
            return &group;
    return nullptr;
}

void SegmentRunner::load(int64_t micro_step) {
    const auto m = static_cast<size_t>(micro_step);
    std::vector<IValue> batch = m < ahead_.size() ? std::move(ahead_[m]) : take_batch_(step_, m);
    begin_micro_step(micro_step).inputs[0] =
        model_.first_inputs(on_device(std::move(batch), options_.device));
}

SegmentRunner::Held& SegmentRunner::begin_micro_step(int64_t micro_step) {
    Held& fresh = held(micro_step);
    fresh = {};
    fresh.inputs.resize(count() + 1);
    fresh.boundaries.resize(count());
    fresh.buffers_before.resize(count());
    fresh.weight_halves.resize(count());
    return fresh;
}

void SegmentRunner::forward(size_t segment, int64_t micro_step) {
    Held& held = this->held(micro_step);
    const RecomputeGroup* group = group_of(segment);
    // Forward may write its arguments in place, and a recompute must find them as they came. (What
    // a later segment writes is never alive at a cut before it.)
    const bool keep_arguments = in_model(segment) == 0 && group != nullptr;
    if (group != nullptr) held.buffers_before[segment] = copied_buffers(model_, in_model(segment));
    Boundary boundary = model_.forward(
        in_model(segment), keep_arguments ? copied(held.inputs[0]) : held.inputs[segment],
        draw_key(micro_step), options_.device);
    const bool backward = info_.segments[segment].backward;
    if (!backward && !boundary.producers.empty())
        fail(ExitCode::kInput,
             "segment {} ({}) had no gradient to pass on in the first batch but has one now: a "
             "branch that depends on "
             "the data decides whether anything is trained there",
             in_model(segment), model_.segments()[in_model(segment)].name);
    end_forward(segment, held, boundary);
    if (group != nullptr) {
        boundary.producers.clear();
        // Inside a group only its first inputs stay; its last outputs' leaves meet the next
        // segment's gradients.
        if (segment > static_cast<size_t>(group->begin)) held.inputs[segment].clear();
        if (segment + 1 < static_cast<size_t>(group->end)) boundary.leaves.clear();
    } else if (!backward && segment > 0) {
        held.inputs[segment].clear();
    }
    held.boundaries[segment] = std::move(boundary);
    if (last_backward_ < count() || segment + 1 < count()) return;
    // No backward will come: what the next stage gets is all that is needed.
    for (std::vector<IValue>& values : held.inputs)
        if (&values != &held.inputs.back()) values.clear();
    held.boundaries.clear();
}

// What came out: the loss, or what the next segment takes.
void SegmentRunner::end_forward(size_t segment, Held& held, Boundary& boundary) {
    if (!ends_model(segment)) {
        held.inputs[segment + 1] = std::move(boundary.values);
    } else {
        if (options_.read_losses_late) {
            unread_losses_.push_back(loss_tensor(boundary).detach().reshape({}));
        } else {
            add_loss(loss_of(boundary));
        }
        model_.store_states(boundary);
    }
    boundary.values.clear();
}

void SegmentRunner::recompute(size_t segment, int64_t micro_step) {
    Held& held = this->held(micro_step);
    const BufferKeeper keeper(model_, model_.segments()[in_model(segment)]);
    put_buffers(model_, in_model(segment), held.buffers_before[segment]);
    Boundary again = model_.forward(in_model(segment), held.inputs[segment], draw_key(micro_step),
                                    options_.device);
    const RecomputeGroup* group = group_of(segment);
    DSL_CHECK(group != nullptr, "segment {} is recomputed but in no group", segment);
    if (segment + 1 < static_cast<size_t>(group->end)) {
        held.inputs[segment + 1] = std::move(again.values);
        held.boundaries[segment].leaves = std::move(again.leaves);
    }
    held.boundaries[segment].producers = std::move(again.producers);
}

void SegmentRunner::backward(size_t segment, int64_t micro_step, bool split) {
    Held& held = this->held(micro_step);
    Boundary& boundary = held.boundaries[segment];
    const std::vector<at::Tensor>& passed_on =
        segment > 0 ? held.boundaries[segment - 1].leaves : held.received;
    if (split) {
        held.weight_halves[segment] =
            ends_model(segment)
                ? SegmentedModel::backward_loss_inputs(boundary, root_scale_, passed_on)
                : SegmentedModel::backward_inputs(boundary, passed_on);
    } else if (ends_model(segment)) {
        SegmentedModel::backward_loss(boundary, root_scale_);
    } else {
        SegmentedModel::backward(boundary);
    }
    held.inputs[segment + 1].clear();
    // What this segment passes on outlives its backward.
    for (const at::Tensor& leaf : passed_on) keep_in_own_memory(leaf.grad());
    if (segment > last_backward_) return;
    held.inputs.clear();
    held.boundaries.clear();
    held.buffers_before.clear();
}

void SegmentRunner::backward_weight(size_t segment, int64_t micro_step) {
    const BackwardContext context;
    held(micro_step).weight_halves[segment].run();
}

std::vector<IValue> SegmentRunner::take_values(int micro_step) {
    return std::exchange(held(micro_step).inputs.back(), {});
}

void SegmentRunner::put_values(int micro_step, const std::vector<IValue>& values) {
    Held& fresh = begin_micro_step(micro_step);
    for (const IValue& value : values)
        static_cast<void>(map_tensors(value, [&](const at::Tensor& tensor) {
            const bool again = std::ranges::any_of(
                fresh.received, [&](const at::Tensor& leaf) { return leaf.is_same(tensor); });
            if (tensor.requires_grad() && !again) fresh.received.push_back(tensor);
            return tensor;
        }));
    fresh.inputs[0] = values;
}

std::vector<at::Tensor> SegmentRunner::take_gradients(int micro_step) {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& leaf : std::exchange(held(micro_step).received, {}))
        gradients.push_back(leaf.grad());
    return gradients;
}

void SegmentRunner::put_gradients(int micro_step, const std::vector<at::Tensor>& gradients) {
    const std::vector<at::Tensor>& leaves = held(micro_step).boundaries.back().leaves;
    DSL_CHECK(gradients.size() == leaves.size(), "{} gradients for {} values", gradients.size(),
              leaves.size());
    for (size_t i = 0; i < leaves.size(); ++i) leaves[i].mutable_grad() = gradients[i];
}

}  // namespace dslaunch

#include "runtime/segment_runner.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/check.h"
#include "base/error.h"
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
      inputs_(model.segments().size() + 1),
      boundaries_(model.segments().size()),
      buffers_before_(model.segments().size()) {
    if (!groups_.empty() && !model.states().empty())
        fail(ExitCode::kInput,
             "forward writes the attribute `{}`, which activation checkpointing would write twice; "
             "switch "
             "activation_checkpointing.number_checkpoints off for this model",
             model.states().front().path);
}

void SegmentRunner::begin_step(int64_t step, double root_scale) {
    step_ = step;
    root_scale_ = root_scale;
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
    switch (instruction.op) {
        case Op::kLoad:
            return load(instruction.micro_step);
        case Op::kForward:
            return forward(segment);
        case Op::kRecompute:
            return recompute(segment);
        case Op::kBackward:
            return backward(segment);
        default:
            DSL_CHECK(false, "{} is not for the segment runner", op_name(instruction.op));
    }
}

DrawKey SegmentRunner::draw_key() const {
    return {options_.seed, step_,
            micro_step_ * options_.data_parallel_size + options_.data_parallel_rank};
}

const RecomputeGroup* SegmentRunner::group_of(size_t segment) const {
    for (const RecomputeGroup& group : groups_)
        if (segment >= static_cast<size_t>(group.begin) && segment < static_cast<size_t>(group.end))
            return &group;
    return nullptr;
}

void SegmentRunner::load(int64_t micro_step) {
    micro_step_ = micro_step;
    for (std::vector<IValue>& values : inputs_) values.clear();
    for (Boundary& boundary : boundaries_) boundary = {};
    const auto m = static_cast<size_t>(micro_step);
    inputs_[0] = model_.first_inputs(
        on_device(m < ahead_.size() ? std::move(ahead_[m]) : take_batch_(step_, micro_step),
                  options_.device));
}

void SegmentRunner::forward(size_t segment) {
    const RecomputeGroup* group = group_of(segment);
    // Forward may write its arguments in place, and a recompute must find them as they came. (What
    // a later segment writes is never alive at a cut before it.)
    const bool keep_arguments = segment == 0 && group != nullptr;
    if (group != nullptr) buffers_before_[segment] = copied_buffers(model_, segment);
    Boundary boundary =
        model_.forward(segment, keep_arguments ? copied(inputs_[0]) : inputs_[segment], draw_key(),
                       options_.device);
    const bool backward = info_.segments[segment].backward;
    if (!backward && !boundary.producers.empty())
        fail(ExitCode::kInput,
             "segment {} ({}) had no gradient to pass on in the first batch but has one now: a "
             "branch that depends on "
             "the data decides whether anything is trained there",
             segment, model_.segments()[segment].name);
    if (segment + 1 == inputs_.size() - 1) {
        if (options_.read_losses_late) {
            unread_losses_.push_back(loss_tensor(boundary).detach().reshape({}));
        } else {
            add_loss(loss_of(boundary));
        }
        model_.store_states(boundary);
    } else {
        inputs_[segment + 1] = std::move(boundary.values);
    }
    boundary.values.clear();
    if (group != nullptr) {
        boundary.producers.clear();
        // Inside a group only its first inputs stay; its last outputs' leaves meet the next
        // segment's gradients.
        if (segment > static_cast<size_t>(group->begin)) inputs_[segment].clear();
        if (segment + 1 < static_cast<size_t>(group->end)) boundary.leaves.clear();
    } else if (!backward && segment > 0) {
        inputs_[segment].clear();
    }
    boundaries_[segment] = std::move(boundary);
}

void SegmentRunner::recompute(size_t segment) {
    const BufferKeeper keeper(model_, model_.segments()[segment]);
    put_buffers(model_, segment, buffers_before_[segment]);
    Boundary again = model_.forward(segment, inputs_[segment], draw_key(), options_.device);
    const RecomputeGroup* group = group_of(segment);
    DSL_CHECK(group != nullptr, "segment {} is recomputed but in no group", segment);
    if (segment + 1 < static_cast<size_t>(group->end)) {
        inputs_[segment + 1] = std::move(again.values);
        boundaries_[segment].leaves = std::move(again.leaves);
    }
    boundaries_[segment].producers = std::move(again.producers);
}

void SegmentRunner::backward(size_t segment) {
    if (segment + 1 == boundaries_.size()) {
        SegmentedModel::backward_loss(boundaries_[segment], root_scale_);
    } else {
        SegmentedModel::backward(boundaries_[segment]);
    }
    inputs_[segment + 1].clear();
    if (segment == 0) return;
    // What this segment passes on outlives its backward.
    for (const at::Tensor& leaf : boundaries_[segment - 1].leaves) keep_in_own_memory(leaf.grad());
}

}  // namespace dslaunch

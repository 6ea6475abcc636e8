#include "runtime/compute/segment_runner.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "graph/lower/device_rewrite.h"
#include "graph/measure/module_profiler.h"
#include "graph/segment/compute_context.h"
#include "plan/step/recompute_groups.h"
#include "runtime/memory/lending_allocator.h"

namespace dslaunch::runtime {

using c10::IValue;

namespace {

std::vector<IValue> copied(const std::vector<IValue>& values) {
    std::vector<IValue> copies;
    for (const IValue& value : values)
        copies.push_back(
            graph::map_tensors(value, [](const at::Tensor& tensor) { return tensor.clone(); }));
    return copies;
}

std::vector<at::Tensor> copied_buffers(const graph::SegmentedModel& model, size_t segment) {
    std::vector<at::Tensor> copies;
    for (const int buffer : model.buffers_of(model.segments()[segment]))
        copies.push_back(model.model().buffers()[buffer].tensor.clone());
    return copies;
}

// Writes through data(): autograd has just saved some of the buffers and must not notice that they
// are overwritten.
void put_buffers(const graph::SegmentedModel& model, size_t segment,
                 const std::vector<at::Tensor>& values) {
    const at::NoGradGuard no_grad;
    const std::vector<int> buffers = model.buffers_of(model.segments()[segment]);
    for (size_t i = 0; i < values.size(); ++i)
        model.model().buffers()[buffers[i]].tensor.data().copy_(values[i]);
}

}  // namespace

SegmentRunner::SegmentRunner(const graph::SegmentedModel& model, const plan::ModelInfo& info,
                             std::vector<plan::RecomputeGroup> groups, TakeBatch take_batch,
                             const SegmentRunnerOptions& options)
    : model_(model),
      info_(info),
      groups_(std::move(groups)),
      take_batch_(std::move(take_batch)),
      options_(options),
      losses_(options.stop_on_nonfinite_loss, targets() != nullptr),
      parts_(plan::parts_of(options.stage_work, info.segments.size())),
      held_(static_cast<size_t>(options.accumulation_steps) * parts_.size()) {
    for (size_t p = 0; p < parts_.size(); ++p) {
        const plan::StagePart& part = parts_[p];
        DSL_CHECK(static_cast<size_t>(part.first_segment) + count(p) <= model_.segments().size(),
                  "{} segments from segment {} on do not exist in a model of {} segments", count(p),
                  part.first_segment, model_.segments().size());
        size_t last = 0;
        while (last < count(p) && !info_.segments[part.segments.begin + last].backward) ++last;
        last_backward_.push_back(last);
    }
    if (!groups_.empty() && !model_.states().empty())
        fail(ExitCode::kInput,
             "forward writes the attribute `{}`, which activation checkpointing would write twice; "
             "set activation_checkpointing.number_checkpoints to 0 for this model",
             model_.states().front().path);
}

void SegmentRunner::begin_step(int64_t step, double root_scale, std::vector<char> empty) {
    step_ = step;
    root_scale_ = root_scale * options_.position_ranks;
    losses_.begin(step, std::move(empty));
}

const std::vector<std::vector<IValue>>& SegmentRunner::look_ahead(int64_t step) {
    ahead_.clear();
    ahead_step_ = step;
    for (int64_t m = 0; m < options_.accumulation_steps; ++m)
        ahead_.push_back(take_batch_(step, m));
    return ahead_;
}

SegmentRunner::Place SegmentRunner::place_of(const plan::Instruction& instruction) const {
    if (instruction.segment < 0) return {0, 0, 0, 0, instruction.micro_step};
    const auto segment = static_cast<size_t>(instruction.segment);
    const size_t part = plan::part_at(parts_, instruction.segment);
    const size_t local = segment - static_cast<size_t>(parts_[part].segments.begin);
    return {part, local, segment, static_cast<size_t>(parts_[part].first_segment) + local,
            instruction.micro_step};
}

void SegmentRunner::run(const plan::Instruction& instruction) {
    switch (instruction.op) {
        case plan::Op::kLoad:
            return load(place_of(instruction));
        case plan::Op::kForward:
            return forward(place_of(instruction));
        case plan::Op::kRecompute:
            return recompute(place_of(instruction));
        case plan::Op::kBackward:
            return backward(place_of(instruction), /*split=*/false);
        case plan::Op::kBackwardInput:
            return backward(place_of(instruction), /*split=*/true);
        case plan::Op::kBackwardWeight:
            return backward_weight(place_of(instruction));
        default:
            DSL_CHECK(false, "the segment runner cannot run {}", plan::op_name(instruction.op));
    }
}

graph::DrawKey SegmentRunner::draw_key(int64_t micro_step) const {
    return {options_.seed, step_,
            micro_step * options_.data_parallel_size + options_.data_parallel_rank, updates_};
}

// Returns the recompute group that contains SEGMENT. SEGMENT counts the segments of the plan.
const plan::RecomputeGroup* SegmentRunner::group_of(size_t segment) const {
    for (const plan::RecomputeGroup& group : groups_)
        if (segment >= static_cast<size_t>(group.begin) && segment < static_cast<size_t>(group.end))
            return &group;
    return nullptr;
}

void SegmentRunner::load(const Place& place) {
    const auto m = static_cast<size_t>(place.micro_step);
    const bool is_here = ahead_step_ == step_ && m < ahead_.size();
    std::vector<IValue> batch = is_here ? std::move(ahead_[m]) : take_batch_(step_, m);
    begin_part(0, place.micro_step).inputs[0] =
        model_.first_inputs(graph::on_device(std::move(batch), options_.device));
}

SegmentRunner::Held& SegmentRunner::begin_part(size_t part, int64_t micro_step) {
    Held& fresh = held(part, micro_step);
    fresh = {};
    fresh.inputs.resize(count(part) + 1);
    fresh.boundaries.resize(count(part));
    fresh.buffers_before.resize(count(part));
    fresh.weight_halves.resize(count(part));
    return fresh;
}

void SegmentRunner::forward(const Place& place) {
    Held& held = this->held(place);
    const plan::RecomputeGroup* group = group_of(place.in_plan);
    // Forward may write to its arguments in place, but a recompute must get the original arguments.
    // (A value that a later segment overwrites is never alive at a cut before it.)
    const bool keep_arguments = place.in_model == 0 && group != nullptr;
    if (group != nullptr)
        held.buffers_before[place.segment] = copied_buffers(model_, place.in_model);
    graph::Boundary boundary = model_.forward(
        place.in_model, keep_arguments ? copied(held.inputs[0]) : held.inputs[place.segment],
        draw_key(place.micro_step), options_.device);
    const bool backward = info_.segments[place.in_plan].backward;
    if (!backward && !boundary.producers.empty())
        fail(ExitCode::kInput,
             "segment {} ({}) needed no gradient in the first batch but needs one now, because a "
             "branch on the data decides whether anything in it is trained; this is not supported",
             place.in_model, model_.segments()[place.in_model].name);
    end_forward(place, boundary);
    if (group != nullptr) {
        boundary.producers.clear();
        // A group keeps only the inputs of its first segment and the leaves after its last segment.
        // These leaves will receive the gradients of the next segment.
        if (place.in_plan > static_cast<size_t>(group->begin)) held.inputs[place.segment].clear();
        if (place.in_plan + 1 < static_cast<size_t>(group->end)) boundary.leaves.clear();
    } else if (!backward && place.segment > 0) {
        held.inputs[place.segment].clear();
    }
    held.boundaries[place.segment] = std::move(boundary);
    if (place.segment + 1 < count(place.part)) return;
    hand_over(place);
    if (last_backward_[place.part] < count(place.part)) return;
    // No backward will follow, so only the values for the next stage are needed.
    for (std::vector<IValue>& values : held.inputs)
        if (&values != &held.inputs.back()) values.clear();
    held.boundaries.clear();
}

// Stores the result: the loss, or the next segment's input.
void SegmentRunner::end_forward(const Place& place, graph::Boundary& boundary) {
    if (!ends_model(place)) {
        held(place).inputs[place.segment + 1] = std::move(boundary.values);
    } else {
        if (options_.read_losses_late) {
            losses_.add_unread(graph::loss_tensor(boundary).detach().reshape({}));
        } else {
            losses_.add(graph::loss_of(boundary));
        }
        if (model_.lowered().has_rewards) losses_.add_rewards(graph::rewards_tensor(boundary));
        model_.store_states(boundary);
    }
    boundary.values.clear();
}

// Passes a finished part's values to the next part if the next part is on this stage too. Both
// parts have the same leaf tensors at the cut, so gradients need not be sent.
void SegmentRunner::hand_over(const Place& place) {
    if (!options_.stage_work.stay(parts_[place.part].behind)) return;
    Held& from = held(place);
    Held& to = begin_part(place.part + 1, place.micro_step);
    to.inputs.front() = std::move(from.inputs.back());
    to.received = from.boundaries.back().leaves;
}

void SegmentRunner::recompute(const Place& place) {
    Held& held = this->held(place);
    // Running a segment again would update its buffers twice (BatchNorm's averages).
    const std::vector<at::Tensor> moved = copied_buffers(model_, place.in_model);
    put_buffers(model_, place.in_model, std::exchange(held.buffers_before[place.segment], {}));
    const graph::ModuleProfiler::RecomputeScope recomputes;
    graph::Boundary again = model_.forward(place.in_model, held.inputs[place.segment],
                                           draw_key(place.micro_step), options_.device);
    put_buffers(model_, place.in_model, moved);
    const plan::RecomputeGroup* group = group_of(place.in_plan);
    DSL_CHECK(group != nullptr, "segment {} is recomputed, but is in no group", place.in_plan);
    if (place.in_plan + 1 < static_cast<size_t>(group->end)) {
        held.inputs[place.segment + 1] = std::move(again.values);
        held.boundaries[place.segment].leaves = std::move(again.leaves);
    }
    held.boundaries[place.segment].producers = std::move(again.producers);
}

void SegmentRunner::backward(const Place& place, bool split) {
    Held& held = this->held(place);
    graph::Boundary& boundary = held.boundaries[place.segment];
    const std::vector<at::Tensor>& passed_on =
        place.segment > 0 ? held.boundaries[place.segment - 1].leaves : held.received;
    if (split) {
        held.weight_halves[place.segment] =
            ends_model(place)
                ? graph::SegmentedModel::backward_loss_inputs(boundary, root_scale_, passed_on)
                : graph::SegmentedModel::backward_inputs(boundary, passed_on);
    } else if (ends_model(place)) {
        graph::SegmentedModel::backward_loss(boundary, root_scale_);
    } else {
        graph::SegmentedModel::backward(boundary);
    }
    held.inputs[place.segment + 1].clear();
    // The gradients that this segment passes on must outlive its backward pass, so they may not use
    // lent memory.
    for (const at::Tensor& leaf : passed_on) keep_in_own_memory(leaf.grad());
    if (place.segment > last_backward_[place.part]) return;
    held.inputs.clear();
    held.boundaries.clear();
    held.buffers_before.clear();
    // Leaves whose gradients will be sent to another stage are kept until they are sent.
    if (options_.stage_work.stay(parts_[place.part].before)) held.received.clear();
}

void SegmentRunner::backward_weight(const Place& place) {
    const graph::BackwardContext context;
    held(place).weight_halves[place.segment].run();
}

std::vector<IValue> SegmentRunner::take_values(const plan::Instruction& send) {
    return std::exchange(held(place_of(send)).inputs.back(), {});
}

void SegmentRunner::put_values(const plan::Instruction& receive,
                               const std::vector<IValue>& values) {
    Held& fresh = begin_part(place_of(receive).part, receive.micro_step);
    for (const IValue& value : values)
        static_cast<void>(graph::map_tensors(value, [&](const at::Tensor& tensor) {
            const bool again = std::ranges::any_of(
                fresh.received, [&](const at::Tensor& leaf) { return leaf.is_same(tensor); });
            if (tensor.requires_grad() && !again) fresh.received.push_back(tensor);
            return tensor;
        }));
    fresh.inputs[0] = values;
}

std::vector<at::Tensor> SegmentRunner::take_gradients(const plan::Instruction& send) {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& leaf : std::exchange(held(place_of(send)).received, {}))
        gradients.push_back(leaf.grad());
    return gradients;
}

void SegmentRunner::put_gradients(const plan::Instruction& receive,
                                  const std::vector<at::Tensor>& gradients) {
    const std::vector<at::Tensor>& leaves = held(place_of(receive)).boundaries.back().leaves;
    DSL_CHECK(gradients.size() == leaves.size(), "{} gradients were received for {} values",
              gradients.size(), leaves.size());
    for (size_t i = 0; i < leaves.size(); ++i) leaves[i].mutable_grad() = gradients[i];
}

}  // namespace dslaunch::runtime

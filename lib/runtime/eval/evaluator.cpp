#include "runtime/eval/evaluator.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "graph/archive/scalar_types.h"
#include "graph/lower/device_rewrite.h"
#include "graph/lower/target_count.h"
#include "graph/segment/compute_context.h"

namespace dslaunch::runtime {

std::unique_ptr<graph::SegmentedModel> Evaluator::lower_model() const {
    // The model need not be cut into smaller pieces, unless parameters are gathered piece by piece
    // or the model is divided into stages.
    const int64_t pieces = parts_.stages.link != nullptr ? parts_.stages.segments
                           : parts_.state->is_sharded()  ? 0
                                                         : 1;
    return std::make_unique<graph::SegmentedModel>(
        graph::SegmentedModel::make(*parts_.model, parts_.lowering, pieces));
}

const graph::SegmentedModel& Evaluator::prepare() {
    if (prepared_) return *parts_.segmented;
    if (parts_.segmented == nullptr) parts_.segmented = lower_model();
    parts_.model->set_training(true);
    stretches_ = {{0, 0, parts_.segmented->segments().size()}};
    if (parts_.stages.link != nullptr) deal_to_stages();
    prepared_ = true;
    return *parts_.segmented;
}

// Returns true if STAGE has all parameters of SEGMENT, and all of its buffers that training may
// change.
bool Evaluator::has_all(const graph::Segment& segment, int stage) const {
    const auto all_in = [stage](const std::vector<int>& wanted,
                                const std::vector<std::vector<int>>& stages_of) {
        return std::ranges::all_of(wanted, [&](int index) {
            const std::vector<int>& of = stages_of[index];
            return of.empty() || std::ranges::find(of, stage) != of.end();
        });
    };
    const graph::SegmentedModel& segmented = *parts_.segmented;
    return all_in(segmented.parameters_of(segment), parts_.stages.stages_of_parameter) &&
           all_in(segmented.buffers_of(segment), parts_.stages.stages_of_buffer);
}

// Assigns each segment to a part, in order. The search begins with the previous segment's part. It
// takes the first part whose stage has everything that the segment reads.
void Evaluator::deal_to_stages() {
    stretches_.clear();
    size_t part = 0;
    for (size_t s = 0; s < parts_.segmented->segments().size(); ++s) {
        const graph::Segment& segment = parts_.segmented->segments()[s];
        while (part < parts_.stages.stage_of_part.size() &&
               !has_all(segment, parts_.stages.stage_of_part[part]))
            ++part;
        if (part == parts_.stages.stage_of_part.size())
            fail(ExitCode::kConfig,
                 "held-out data: the segments of the model in eval mode differ from those in "
                 "training, and no stage of the pipeline has everything that segment {} reads; let "
                 "stages begin where layers begin (dslaunch.pipeline.first_segments), or evaluate "
                 "without a pipeline",
                 segment.name);
        const int stage = parts_.stages.stage_of_part[part];
        if (stretches_.empty() || stretches_.back().stage != stage)
            stretches_.push_back({stage, s, s});
        stretches_.back().end = s + 1;
    }
    if (std::ranges::count(stretches_, own_stage(), &Stretch::stage) == 0)
        fail(ExitCode::kConfig,
             "held-out data: no segment of the model in eval mode is left for stage {} of the "
             "pipeline; use fewer stages, or evaluate without a pipeline",
             own_stage());
}

// Returns the arguments for the samples of BATCH; an empty list if BATCH has no rows, or if neither
// the model nor the loss needs arguments on this stage.
std::vector<c10::IValue> Evaluator::arguments_of(const EvalBatch& batch) const {
    if (batch.rows == 0 || (!has_first() && !has_last())) return {};
    std::vector<int64_t> samples(static_cast<size_t>(batch.rows));
    std::iota(samples.begin(), samples.end(), batch.first);
    return held_out_.batch(samples);
}

// Runs a stretch. A rank without a batch only takes part in gathering the parameters.
graph::Boundary Evaluator::run_stretch(const Stretch& stretch, const EvalBatch& batch,
                                       std::vector<c10::IValue> values) const {
    const bool takes_part = batch.rows > 0;
    graph::Boundary boundary;
    boundary.values = std::move(values);
    for (size_t s = stretch.begin; s < stretch.end; ++s) {
        const graph::Segment& segment = parts_.segmented->segments()[s];
        parts_.state->hold(parts_.segmented->parameters_of(segment), takes_part);
        if (takes_part)
            boundary = parts_.segmented->forward(
                s, boundary.values, {parts_.config->seed, 0, batch.index, updates_}, parts_.device);
        parts_.state->let_go();
    }
    return boundary;
}

// Runs this stage's stretches in the model's order. All stages keep this order, so they cannot wait
// for each other in a circle.
graph::Boundary Evaluator::forward(const EvalBatch& batch,
                                   const std::vector<c10::IValue>& arguments) const {
    constexpr uint32_t kNumber = 0;  // number of the one message between two stages
    graph::Boundary boundary;
    for (size_t i = 0; i < stretches_.size(); ++i) {
        const Stretch& stretch = stretches_[i];
        if (stretch.stage != own_stage()) continue;
        const auto message = [&](size_t from) {
            return StageMessage{static_cast<int>(from), false, batch.index};
        };
        std::vector<c10::IValue> values;
        if (batch.rows > 0)
            values =
                i == 0
                    ? parts_.segmented->first_inputs(graph::on_device(arguments, parts_.device))
                    : parts_.stages.link->receive(stretches_[i - 1].stage, kNumber, message(i - 1));
        boundary = run_stretch(stretch, batch, std::move(values));
        if (batch.rows > 0 && i + 1 < stretches_.size())
            parts_.stages.link->send(stretches_[i + 1].stage, kNumber, boundary.values, message(i));
    }
    return boundary;
}

EvalShare Evaluator::run(const std::function<void(double share)>& tell) {
    const at::ScalarType compute_dtype = graph::scalar_type_of(parts_.config->precision.compute);
    const graph::ComputeContext context(false, compute_dtype, parts_.device.type());
    static_cast<void>(prepare());
    parts_.model->set_training(false);
    const std::vector<at::Tensor> own = parts_.buffers->copy();
    parts_.buffers->broadcast();
    if (parts_.writable != nullptr)
        write_parameters(*parts_.segmented, *parts_.writable, parts_.is_written_here);
    const EvalPlan plan{held_out_.rows(), parts_.config->batch.micro_rows,
                        parts_.config->batch.data_parallel_size, parts_.rank};
    EvalShare share;
    for (int64_t round = 0; round < plan.round_count(); ++round) {
        if (tell) tell(static_cast<double>(round) / static_cast<double>(plan.round_count()));
        if (parts_.leaves && parts_.leaves()) {
            share.cut_short = true;
            break;
        }
        const EvalBatch batch = plan.batch(round);
        const std::vector<c10::IValue> arguments = arguments_of(batch);
        const graph::Boundary last = forward(batch, arguments);
        if (batch.rows == 0 || !has_last() || !parts_.counts) continue;
        const auto rows = static_cast<double>(batch.rows);
        share.samples += rows;
        const graph::TargetCount* const targets = parts_.segmented->lowered().targets.get();
        const double counted = targets == nullptr ? rows : targets->of(arguments);
        if (counted == 0) continue;
        const bool by_token = parts_.config->loss.mean == config::LossMean::kToken;
        // The loss of a batch is a mean over its samples. It is multiplied by their number, so that
        // each sample counts once. With LossMean::kToken, the loss is already a sum over tokens.
        share.loss_sum += by_token ? graph::loss_of(last) : graph::loss_of(last) * rows;
        share.weight += by_token ? counted : rows;
        if (parts_.segmented->lowered().has_rewards)
            share.rewards.add(graph::reward_means(graph::rewards_tensor(last)), rows);
    }
    parts_.buffers->restore(own);
    parts_.model->set_training(true);
    return share;
}

}  // namespace dslaunch::runtime

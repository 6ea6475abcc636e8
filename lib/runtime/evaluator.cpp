#include "runtime/evaluator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "graph/compute_context.h"
#include "graph/device_rewrite.h"
#include "graph/loss.h"
#include "graph/precision.h"

namespace dslaunch {

Evaluator::Evaluator(Model& model, const RunConfig& config, DataSource held_out,
                     ModelBuffers& buffers, ParameterState& state, int rank,
                     std::function<bool()> leaves, EvalStages stages)
    : model_(model),
      config_(config),
      held_out_(std::move(held_out)),
      buffers_(buffers),
      state_(state),
      rank_(rank),
      leaves_(std::move(leaves)),
      stages_(std::move(stages)) {}

void Evaluator::prepare(at::ScalarType compute_dtype) {
    LowerOptions options;
    options.training = false;
    options.loss = config_.loss;
    options.device = device_of(model_);
    options.compute_dtype = compute_dtype;
    // Pieces are needed only where their parameters are gathered one piece at a time, or lie in
    // stages.
    const int64_t pieces = stages_.link != nullptr ? stages_.segments : state_.is_sharded() ? 0 : 1;
    segmented_ = SegmentedModel::make(model_, options, pieces);
    end_ = segmented_->segments().size();
    if (stages_.link != nullptr) deal_to_stages();
}

// Parameters, and buffers that training may move.
bool Evaluator::has_all(const Segment& segment, int stage) const {
    const auto all_in = [stage](const std::vector<int>& wanted,
                                const std::vector<std::vector<int>>& stages_of) {
        return std::ranges::all_of(wanted, [&](int index) {
            const std::vector<int>& of = stages_of[static_cast<size_t>(index)];
            return of.empty() || std::ranges::find(of, stage) != of.end();
        });
    };
    const LoweredGraph& lowered = segmented_->lowered();
    if (!all_in(segment.parameters, stages_.stages_of_parameter) ||
        !all_in(segment.buffers, stages_.stages_of_buffer))
        return false;
    return !segment.module_input ||
           (all_in(lowered.opaque_parameters, stages_.stages_of_parameter) &&
            all_in(lowered.opaque_buffers, stages_.stages_of_buffer));
}

// A segment is run where all is that it reads, as early as that can be.
void Evaluator::deal_to_stages() {
    const size_t count = end_;
    size_t here = 0;
    begin_ = end_ = count;
    int stage = 0;
    for (size_t s = 0; s < count; ++s) {
        const Segment& segment = segmented_->segments()[s];
        while (stage < stages_.link->stages() && !has_all(segment, stage)) ++stage;
        if (stage == stages_.link->stages())
            fail(ExitCode::kConfig,
                 "held-out data: the model in eval mode is cut otherwise than in training, and no "
                 "stage of the pipeline has all that its segment {} reads; let stages begin where "
                 "layers do (dslaunch.pipeline.first_segments), or evaluate without a pipeline",
                 segment.name);
        if (stage != stages_.link->stage()) continue;
        if (here++ == 0) begin_ = s;
        end_ = s + 1;
    }
    if (here == 0)
        fail(ExitCode::kConfig,
             "held-out data: no segment of the model in eval mode is left for stage {} of the "
             "pipeline; use fewer stages, or evaluate without a pipeline",
             stages_.link->stage());
}

// Nothing where neither the model nor the loss needs them.
std::vector<c10::IValue> Evaluator::arguments_of(const EvalBatch& batch) const {
    if (batch.rows == 0 || (!first_stage() && !last_stage())) return {};
    std::vector<int64_t> samples(static_cast<size_t>(batch.rows));
    std::iota(samples.begin(), samples.end(), batch.first);
    return held_out_.batch(samples);
}

// A rank without a batch takes part in bringing the parameters together, and no more.
Boundary Evaluator::forward(const EvalBatch& batch,
                            const std::vector<c10::IValue>& arguments) const {
    constexpr uint32_t kNumber = 0;  // of the one message between two stages
    const c10::Device device = device_of(model_);
    const bool takes_part = batch.rows > 0;
    Boundary boundary;
    if (takes_part)
        boundary.values = first_stage() ? segmented_->first_inputs(on_device(arguments, device))
                                        : stages_.link->receive(stages_.link->stage() - 1, kNumber);
    for (size_t s = begin_; s < end_; ++s) {
        const Segment& segment = segmented_->segments()[s];
        state_.hold(
            segment.module_input ? segmented_->lowered().opaque_parameters : segment.parameters,
            takes_part);
        if (takes_part)
            boundary =
                segmented_->forward(s, boundary.values, {config_.seed, 0, batch.index}, device);
        state_.let_go();
    }
    if (takes_part && !last_stage())
        stages_.link->send(stages_.link->stage() + 1, kNumber, boundary.values);
    return boundary;
}

EvalShare Evaluator::run() {
    const at::ScalarType compute_dtype = scalar_type_of(config_.precision.compute);
    const ComputeContext context(false, compute_dtype, device_of(model_).type());
    if (!segmented_) prepare(compute_dtype);
    model_.module().eval();
    const std::vector<at::Tensor> own = buffers_.copy();
    buffers_.broadcast();
    const EvalPlan plan(
        {held_out_.rows(), config_.batch.micro_rows, config_.batch.data_parallel_size, rank_});
    EvalShare share;
    for (int64_t round = 0; round < plan.round_count(); ++round) {
        if (leaves_ && leaves_()) {
            share.cut_short = true;
            break;
        }
        const EvalBatch batch = plan.batch(round);
        const std::vector<c10::IValue> arguments = arguments_of(batch);
        const Boundary last = forward(batch, arguments);
        if (batch.rows == 0 || !last_stage()) continue;
        const bool by_token = config_.loss.mean == LossMean::kToken;
        // A batch's mean counts for its samples; a sum over tokens is a sum already.
        const auto rows = static_cast<double>(batch.rows);
        share.loss_sum += by_token ? loss_of(last) : loss_of(last) * rows;
        share.weight +=
            by_token ? static_cast<double>(counted_targets(config_.loss, arguments.back())) : rows;
        share.samples += rows;
    }
    buffers_.restore(own);
    model_.module().train();
    return share;
}

}  // namespace dslaunch

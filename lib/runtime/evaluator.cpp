#include "runtime/evaluator.h"

#include <ATen/ATen.h>

#include <numeric>

#include "graph/compute_context.h"
#include "graph/device_rewrite.h"
#include "graph/loss.h"
#include "graph/precision.h"

namespace dslaunch {

Evaluator::Evaluator(Model& model, const RunConfig& config, DataSource held_out,
                     ModelBuffers& buffers, ParameterState& state, int rank,
                     std::function<bool()> leaves)
    : model_(model),
      config_(config),
      held_out_(std::move(held_out)),
      buffers_(buffers),
      state_(state),
      rank_(rank),
      leaves_(std::move(leaves)) {}

// A rank without a batch takes part in bringing the parameters together, and no more.
Boundary Evaluator::forward(const EvalBatch& batch,
                            const std::vector<c10::IValue>& arguments) const {
    const c10::Device device = device_of(model_);
    const bool takes_part = batch.rows > 0;
    Boundary boundary;
    if (takes_part) boundary.values = segmented_->first_inputs(on_device(arguments, device));
    for (size_t s = 0; s < segmented_->segments().size(); ++s) {
        const Segment& segment = segmented_->segments()[s];
        state_.hold(
            segment.module_input ? segmented_->lowered().opaque_parameters : segment.parameters,
            takes_part);
        if (takes_part)
            boundary =
                segmented_->forward(s, boundary.values, {config_.seed, 0, batch.index}, device);
        state_.let_go();
    }
    return boundary;
}

EvalShare Evaluator::run() {
    const at::ScalarType compute_dtype = scalar_type_of(config_.precision.compute);
    const ComputeContext context(false, compute_dtype, device_of(model_).type());
    if (!segmented_) {
        LowerOptions options;
        options.training = false;
        options.loss = config_.loss;
        options.device = device_of(model_);
        options.compute_dtype = compute_dtype;
        // Pieces are needed only where their parameters are gathered one piece at a time.
        segmented_ = SegmentedModel::make(model_, options, state_.is_sharded() ? 0 : 1);
    }
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
        std::vector<c10::IValue> arguments;
        if (batch.rows > 0) {
            std::vector<int64_t> samples(static_cast<size_t>(batch.rows));
            std::iota(samples.begin(), samples.end(), batch.first);
            arguments = held_out_.batch(samples);
        }
        const Boundary last = forward(batch, arguments);
        if (batch.rows == 0) continue;
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

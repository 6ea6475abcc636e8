#include "runtime/evaluator.h"

#include <ATen/ATen.h>

#include <numeric>

#include "graph/compute_context.h"
#include "graph/device_rewrite.h"
#include "graph/loss.h"
#include "runtime/data/eval_plan.h"

namespace dslaunch {

Evaluator::Evaluator(Model& model, const RunConfig& config, DataSource held_out,
                     ModelBuffers& buffers, int rank)
    : model_(model),
      config_(config),
      held_out_(std::move(held_out)),
      buffers_(buffers),
      rank_(rank) {}

EvalShare Evaluator::run() {
    const ComputeContext context(false);
    const c10::Device device = device_of(model_);
    if (!segmented_) {
        LowerOptions options;
        options.training = false;
        options.loss = config_.loss;
        options.device = device;
        segmented_ = SegmentedModel::make(model_, options, 1);
    }
    model_.module().eval();
    const std::vector<at::Tensor> own = buffers_.copy();
    buffers_.broadcast();
    const EvalPlan plan(
        {held_out_.rows(), config_.batch.micro_rows, config_.batch.data_parallel_size, rank_});
    EvalShare share;
    for (int64_t round = 0; round < plan.round_count(); ++round) {
        const EvalBatch batch = plan.batch(round);
        if (batch.rows == 0) continue;
        std::vector<int64_t> samples(static_cast<size_t>(batch.rows));
        std::iota(samples.begin(), samples.end(), batch.first);
        const std::vector<c10::IValue> arguments = held_out_.batch(samples);
        const Boundary last =
            segmented_->forward(0, segmented_->first_inputs(on_device(arguments, device)),
                                {config_.seed, 0, batch.index}, device);
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

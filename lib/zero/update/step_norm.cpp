#include "zero/update/step_norm.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"

namespace dslaunch::zero {

StepNorm::StepNorm(RankParts& parts, const runtime::Arena& arena)
    : parts_(parts),
      norm_(*parts.place().map, parts.place().partition, parts.slices().norm, arena, parts.group(),
            parts.collectives()) {
    const plan::FlatLayout& layout = *parts.place().layout;
    const plan::StepPlanOptions& plan = *parts.place().plan_options;
    if (plan.norm_first() && plan.keeps_reduced())
        chunks_.emplace(norm_.blocks(), parts.states(), layout, parts.queue());
    if (parts.options().skip_overflow)
        nonfinite_ = parts.device().allocate(Bytes{layout.trained_slices * int64_t{4}},
                                             "flags of gradients");
}

void StepNorm::begin_step() {
    if (parts_.options().skip_overflow)
        parts_.device().compute().fill(nonfinite_.floats().data(), 0,
                                       std::ssize(nonfinite_.floats()));
}

void StepNorm::look_for_overflow(int b) {
    if (!parts_.options().skip_overflow) return;
    const plan::Bucket& bucket = parts_.bucket(b);
    std::vector<device::FloatArray> gradients;  // by slice, empty without a gradient
    for (int i = bucket.first_slice; i < bucket.end_slice; ++i) {
        const plan::ParameterSlice& slice = parts_.place().layout->slices[i];
        device::FloatArray& values = gradients.emplace_back();
        if (parts_.gradients().has_gradient(i))
            values = {parts_.gradients().own(b).data() + slice.offset_numel - bucket.offset_numel,
                      slice.numel};
    }
    parts_.device().compute().flag_nonfinite(gradients,
                                             nonfinite_.floats().data() + bucket.first_slice);
}

void StepNorm::take_sums(int chunk, const float* sums) {
    if (chunks_) chunks_->add(chunk, sums);
}

// Returns the model's first parameter whose gradient on this rank is not finite in this step, or
// -1.
int StepNorm::first_bad_parameter() {
    std::vector<float> flags(nonfinite_.floats().size());
    parts_.queue().copy_out(flags.data(), nonfinite_.floats().data(),
                            std::ssize(nonfinite_.bytes()));
    int first = -1;
    for (size_t i = 0; i < flags.size(); ++i) {
        const int parameter = parts_.place().layout->slices[i].parameter;
        if (flags[i] != 0 && (first < 0 || parameter < first)) first = parameter;
    }
    return first;
}

std::vector<double> StepNorm::block_squares() {
    for (int b = 0; b < parts_.place().layout->trained_buckets; ++b) parts_.gradients().open(b);
    std::vector<float> whole(static_cast<size_t>(parts_.place().layout->block_numel));
    std::vector<double> squares;
    std::vector<device::FloatArray> blocks;  // not summed yet
    const auto sum = [&] {
        const std::vector<double> sums = parts_.queue().sums_of_squares(blocks);
        squares.insert(squares.end(), sums.begin(), sums.end());
        blocks.clear();
    };
    for (const NormBlock& block : norm_.blocks()) {
        // A block may be in two parts of a reduced bucket; it is still summed as a whole.
        bool in_parts = false;
        parts_.gradients().for_each_in(
            block.bucket, block.range,
            [&](const Range& range, std::span<const float* const> terms, float) {
                if (range == block.range) return blocks.push_back({terms[0], range.numel});
                in_parts = true;
                std::copy_n(terms[0], range.numel,
                            whole.begin() + (range.begin - block.range.begin));
            });
        if (!in_parts) continue;
        blocks.push_back({whole.data(), block.range.numel});
        sum();  // before the next block overwrites WHOLE
    }
    sum();
    return squares;
}

bool StepNorm::compute() {
    const StepNow& now = parts_.now();
    const GradientNorm::Result result = norm_.compute(
        now.number, chunks_ ? chunks_->take() : block_squares(), parts_.options().pipeline,
        parts_.options().tensor, parts_.place().plan->exchange != plan::Exchange::kExact);
    const double norm = std::sqrt(result.squares) / now.settings.loss_scale;
    value_ = norm;
    if (!std::isfinite(result.squares)) {
        note_overflow(result.bad_parameter);
        return false;
    }
    // torch.nn.utils.clip_grad_norm_ uses the same factor.
    const double factor = parts_.options().gradient_clipping / (norm + 1e-6);
    if (parts_.options().gradient_clipping > 0 && factor < 1)
        parts_.multiply_gradients(static_cast<float>(factor / now.settings.loss_scale));
    return true;
}

void StepNorm::note_overflow(int bad_parameter) {
    const ZeroOptions& options = parts_.options();
    if (!options.skip_overflow) {
        fail(
            ExitCode::kDiverged,
            "the gradient of {} is not finite in step {}: training has diverged; lower the "
            "learning rate or look at the data of this step{}",
            bad_parameter < 0 ? "the whole model" : parts_.model().parameters()[bad_parameter].name,
            parts_.now().settings.step,
            parts_.place().plan_options->reduce_packing() == WirePacking::kF16
                ? "; or a sum was too large for fp16 between hosts: set communication_data_type to "
                  "bf16, or use prescale_gradients"
                : "");
    }
    runtime::Overflow overflow{bad_parameter, -1};
    parts_.states().skip_step();
    runtime::Collectives& all =
        options.pipeline.job != nullptr ? *options.pipeline.job : parts_.collectives();
    const std::vector<std::string> own = all.all_gather(std::to_string(first_bad_parameter()));
    for (size_t rank = 0; rank < own.size(); ++rank) {
        const int parameter = std::stoi(own[rank]);
        const bool earlier =
            parameter >= 0 && (overflow.rank < 0 || parameter < overflow.parameter);
        if (earlier) overflow = {parameter, static_cast<int>(rank)};
    }
    parts_.skip_step(overflow);
}

}  // namespace dslaunch::zero

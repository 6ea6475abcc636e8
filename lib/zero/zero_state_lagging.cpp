// The part of the ZeRO state that updates important units in every step and the rest later.
// Source: Lan et al. 2025 (ZenFlow); decisions: docs/decisions/018-updates-that-lag.md.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/flat_optimizer.h"
#include "zero/zero_state.h"

namespace dslaunch::zero {

// Every rank chooses among the units that it updates; no unit has a part elsewhere.
void ZeroState::select() {
    if (overflow_) return lagging_->drop_squares();
    const bool added = place_.plan_options->keeps_reduced() && place_.map->stage() > 0;
    if (!added) add_squares_in_order();
    lagging_->choose();
}

// At stage 0 a rank's pieces do not come in order, and the order of a sum is the same on all ranks.
void ZeroState::add_squares_in_order() {
    struct Part {
        int chunk;
        ChunkPart part;
    };
    for (int b = 0; b < place_.layout->trained_buckets; ++b) {
        gradients_->open(b);
        std::vector<Part> parts;
        for (const int c : states_->chunks_of(b))
            for (const ChunkPart& part : states_->parts(c)) parts.push_back({c, part});
        std::ranges::sort(parts, {}, [](const Part& part) { return part.part.range.begin; });
        for (const Part& part : parts) {
            ChunkView view;
            if (place_.plan_options->keeps_reduced()) view = *states_->view_at_rest(part.chunk);
            for_gradients(b, part.part, part.part.range, view,
                          [&](const Range& range, std::span<const float* const> terms, float) {
                              lagging_->add_squares(b, range, terms.front());
                          });
        }
    }
}

kernels::AdamStep ZeroState::step_of(const LagSpan& span, int64_t steps) const {
    const auto slice = static_cast<size_t>(span.slice);
    const Run run{{}, 1, options_.rules.index_of(place_.layout->slices[slice].parameter), -1};
    return optimizers_[static_cast<size_t>(run.rule)].adam(rate(run), slice_steps_[slice],
                                                           settings_.betas, steps);
}

// VIEW is the chunk's; an important span of a chunk on disk has its states elsewhere.
kernels::FlatRange ZeroState::arrays_of_span(int c, const LagSpan& span, const ChunkView& view) {
    const int b = states_->chunk(c).bucket;
    const ChunkPart& part = states_->parts(c)[static_cast<size_t>(span.part)];
    if (span.kept_at < 0) return arrays_of(b, part, view, span.range);
    const ChunkView kept = lagging_->kept(c, span);
    const auto numel = static_cast<size_t>(span.range.numel);
    kernels::FlatRange update = arrays_of(b, part, ChunkView{}, span.range);
    update.first = {kept.moments[0], numel};
    update.second = {kept.moments[1], numel};
    if (kept.master != nullptr) update.parameters = {kept.master, numel};
    return update;
}

// Says what becomes of a span's GRADIENTS.
void ZeroState::take_gradients(int c, const LagSpan& span, const ChunkView& view,
                               const float* gradients, float scale) {
    const bool at_once = place_.plan->lag.kind == plan::Lag::kWhole && waited_ == 0;
    if (!span.important && !at_once)
        return queue().accumulate_sum({&gradients, 1}, scale, lagging_->waiting(c) + span.in_chunk,
                                      span.range.numel);
    kernels::AdamUpdate& update = updates_.emplace_back();
    update.range = arrays_of_span(c, span, view);
    update.range.gradient_scale = scale;
    update.step = step_of(span, 1);
    sources_.push_back(gradients);
}

void ZeroState::add_update(int c, const LagSpan& span, const ChunkView& view) {
    const int b = states_->chunk(c).bucket;
    const size_t first = static_cast<size_t>(place_.layout->buckets[b].first_slice);
    const ChunkPart& part = states_->parts(c)[static_cast<size_t>(span.part)];
    if (used_[static_cast<size_t>(span.slice) - first] != 0)
        for_gradients(
            b, part, span.range, view,
            [&](const Range& range, std::span<const float* const> gradients, float scale) {
                DSL_CHECK(gradients.size() == 1, "{} terms of a sum", gradients.size());
                LagSpan here = span;
                here.range = range;
                here.in_chunk += range.begin - span.range.begin;
                if (span.kept_at >= 0) here.kept_at += range.begin - span.range.begin;
                const float sign = options_.optimizer.maximize ? -1.0F : 1.0F;
                take_gradients(c, here, view, gradients.front(), sign * scale * clip_factor_);
            });
    const bool rest_is_due = place_.plan->lag.kind == plan::Lag::kWhole && waited_ > 0;
    if (span.important || !rest_is_due || slice_steps_[static_cast<size_t>(span.slice)] == 0)
        return;
    kernels::AdamUpdate& update = updates_.emplace_back();
    update.range = arrays_of_span(c, span, view);
    update.range.gradient_scale = 1.0F / static_cast<float>(waited_ + 1);
    update.step = step_of(span, waited_ + 1);
    sources_.push_back(lagging_->waiting(c) + span.in_chunk);
}

void ZeroState::update_lagging_chunk(const plan::Instruction& instruction) {
    const int b = instruction.bucket;
    const int c = instruction.chunk;
    const ChunkView view = states_->view(instruction);
    lagging_->forget_saved(c);
    if (c == states_->chunks_of(b).front()) {
        used_.assign(static_cast<size_t>(bucket(b).end_slice - bucket(b).first_slice), 0);
        for (const Run& run : runs_)
            for_each_slice(b, run.range, [&](int i, const Range&, int64_t) {
                used_[static_cast<size_t>(i - bucket(b).first_slice)] = 1;
            });
    }
    const auto update_spans = [&](bool writes) {
        updates_.clear();
        sources_.clear();
        for (const LagSpan& span : lagging_->spans(c)) {
            const int piece = states_->parts(c)[static_cast<size_t>(span.part)].piece;
            if (place_.map->pieces(b)[piece].writes == writes) add_update(c, span, view);
        }
        for (size_t k = 0; k < updates_.size(); ++k)
            updates_[k].range.gradients = {&sources_[k], 1};
        queue().adam_steps(updates_);
    };
    update_spans(false);
    await_replicas(b);
    update_spans(true);
    if (place_.plan->lag.kind != plan::Lag::kWhole) return;
    if (waited_ > 0)
        for (const LagSpan& span : lagging_->spans(c))
            if (!span.important)
                queue().fill(lagging_->waiting(c) + span.in_chunk, 0, span.range.numel);
    lagging_->take_choice(c, view);
}

// Counts the gradients that wait, once this step's are known to be FINITE or not.
void ZeroState::count_waiting(bool finite) {
    const plan::LagPlan& lag = place_.plan->lag;
    // The late updates of this step are done.
    if (lag.kind == plan::Lag::kLate && lagging_->due()) lagging_->set_waits(0, /*due=*/false);
    waited_ = lagging_->waits();
    if (!finite) return;
    if (lag.kind == plan::Lag::kWhole) return lagging_->set_waits(0, /*due=*/false);
    lagging_->set_waits(waited_ + 1, lagging_->due() || lag.fills);
}

// Runs beside the step's computation, which reads the parameters: what they become lands later.
void ZeroState::update_rest_late(const plan::Instruction& instruction) {
    if (!lagging_->due()) return;
    const int b = instruction.bucket;
    const int c = instruction.chunk;
    if (guard_ != nullptr) guard_->before_update(c);
    lagging_->forget_saved(c);
    // L2 decay reads parameters that other ranks have written in the step before.
    if (reads_replicas()) parameters_->await_whole(b, step_ - 1);
    const ChunkView view = states_->view(instruction);
    const int64_t element_bytes = dtype_bytes(options_.dtype);
    for (const LagSpan& span : lagging_->spans(c)) {
        if (span.important) continue;
        kernels::FlatRange update = arrays_of_span(c, span, view);
        const auto numel = static_cast<size_t>(span.range.numel);
        const int piece = states_->parts(c)[static_cast<size_t>(span.part)].piece;
        if (place_.map->pieces(b)[piece].writes) {
            std::byte* const later = lagging_->later(c) + span.in_chunk * element_bytes;
            std::memcpy(later, parameters_->kept(b, span.range.begin),
                        numel * static_cast<size_t>(element_bytes));
            if (half()) {
                update.half_parameters = {reinterpret_cast<uint16_t*>(later), numel};
            } else {
                update.parameters = {reinterpret_cast<float*>(later), numel};
            }
        }
        if (slice_steps_[static_cast<size_t>(span.slice)] == 0) continue;
        float* const waiting = lagging_->waiting(c) + span.in_chunk;
        const float* const gradients = waiting;
        update.gradients = {&gradients, 1};
        update.gradient_scale = 1.0F / static_cast<float>(lagging_->waits());
        kernels::adam_step(update, step_of(span, lagging_->waits()));
        std::fill_n(waiting, span.range.numel, 0.0F);
    }
    lagging_->hold(c);
    lagging_->take_choice(c, view);
    if (instruction.buffer >= 0) states_->set_changed(instruction.buffer);
}

// The late updates of a bucket become its parameters, in a step that is skipped too.
void ZeroState::land(int b) {
    const auto element_bytes = static_cast<size_t>(dtype_bytes(options_.dtype));
    for (const int c : states_->chunks_of(b)) {
        for (const LagSpan& span : lagging_->landing(c)) {
            const int piece = states_->parts(c)[static_cast<size_t>(span.part)].piece;
            if (span.important || !place_.map->pieces(b)[piece].writes) continue;
            std::memcpy(parameters_->kept(b, span.range.begin),
                        lagging_->later(c) + static_cast<size_t>(span.in_chunk) * element_bytes,
                        static_cast<size_t>(span.range.numel) * element_bytes);
        }
        lagging_->landed(c);
    }
}

}  // namespace dslaunch::zero

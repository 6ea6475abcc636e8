// The part of the ZeRO state that 1-bit Adam and 0/1 Adam need: what hosts tell each other instead
// of gradients, and how what comes back becomes an update. Sources: Tang et al. 2021, Lu et al.
// 2022; decisions: docs/decisions/016-hosts-are-the-workers.md.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/one_bit.h"
#include "runtime/schedules/exchange_schedule.h"
#include "zero/zero_state.h"

namespace dslaunch::zero {

using plan::Exchange;

// Counts the rate of the step that is done, unless it was skipped.
void ZeroState::settle_rates() {
    const Exchange last = std::exchange(last_exchange_, Exchange::kExact);
    if (overflow_) return;
    if (last == Exchange::kNone) rates_since_ += settings_.lr;
    if (last == Exchange::kMoves) rates_since_ = 0;
}

// Before hosts step alone for the first time since this state was made, they are together. The
// errors of gradients mean nothing to moves, so they go.
void ZeroState::begin_alone() {
    const Exchange exchange = last_exchange_ = place_.plan->exchange;
    if (settings_.update == runtime::ExchangeSchedule::first_alone(options_.optimizer)) {
        for (int b = 0; b < place_.layout->trained_buckets; ++b) allow_changes(b);
        exchange_->clear();
    }
    const bool alone = exchange == Exchange::kNone || exchange == Exchange::kMoves;
    if (!alone || !meeting_.empty()) return;
    for (int b = 0; b < place_.layout->trained_buckets; ++b) {
        std::vector<ZeroedFloats>& of_bucket = meeting_.emplace_back();
        for (const OwnedPiece& piece : place_.map->pieces(b))
            of_bucket.emplace_back(piece.range.numel);
        // At stage 0 other ranks write some of them.
        if (!place_.map->is_gathered(b)) parameters_->await_whole(b, step_ - 1);
        for (const int c : states_->chunks_of(b)) {
            const std::optional<ChunkView> view = states_->view_at_rest(c);
            for (const ChunkPart& part : states_->parts(c)) {
                const kernels::FlatRange arrays = arrays_of(b, part, *view, part.range);
                const bool writes = !arrays.parameters.empty();
                const float* const from =
                    writes ? arrays.parameters.data() : arrays.decay_parameters.data();
                std::copy_n(from, part.range.numel, moves_of(b, part, arrays, part.range).meeting);
            }
        }
    }
}

int ZeroState::error_unit(int b) const {
    return static_cast<int>(std::ssize(place_.plan->chunks.all)) + b;
}

// Waits until states and errors of a bucket may change.
void ZeroState::allow_changes(int b) {
    if (guard_ == nullptr) return;
    for (const int c : states_->chunks_of(b)) guard_->before_update(c);
    guard_->before_update(error_unit(b));
}

void ZeroState::exchange(const plan::Instruction& instruction) {
    if (overflow_) return;
    const int b = instruction.bucket;
    gradients_->open(b);
    runs_ = find_runs(b);
    exchange_bucket(b, [&](const ChunkPart& part, const Range& range, const ChunkView& view,
                           std::span<float> values) { fill_values(b, part, range, view, values); });
}

// Calls fill(part, range, view, values) for what this rank gives to the exchange, and does it.
// Parameters that have never had a gradient give 0.
template <typename Fill>
void ZeroState::exchange_bucket(int b, Fill&& fill) {
    allow_changes(b);
    const std::span<float> values = exchange_->begin(b);
    const bool all = covers(runs_, bucket(b).numel);
    for (const int c : states_->chunks_of(b)) {
        const std::optional<ChunkView> view = states_->view_at_rest(c);
        DSL_CHECK(view.has_value(), "chunk {} is not in memory", c);
        for (const ChunkPart& part : states_->parts(c)) {
            if (!place_.map->pieces(b)[part.piece].writes) continue;
            if (!all) std::fill_n(values.data() + part.range.begin, part.range.numel, 0.0F);
            for (const Run& run : runs_) {
                const Range both = intersect(run.range, part.range);
                if (both.numel > 0) fill(part, both, *view, values);
            }
        }
    }
    exchange_->average(b);
}

void ZeroState::fill_values(int b, const ChunkPart& part, const Range& range, const ChunkView& view,
                            std::span<float> values) {
    if (place_.plan->exchange == Exchange::kMoves) {
        step_alone(b, part, range, view);
        return give_moves(b, part, range, view, values);
    }
    for_gradients(b, part, range, view,
                  [&](const Range& here, std::span<const float* const> gradients, float scale) {
                      const std::span<float> into = values.subspan(static_cast<size_t>(here.begin),
                                                                   static_cast<size_t>(here.numel));
                      if (place_.plan->exchange == Exchange::kGradient)
                          return queue().ordered_sum(gradients, scale * clip_factor_, into.data(),
                                                     here.numel);
                      const kernels::FlatRange arrays = arrays_of(b, part, view, here);
                      std::ranges::copy(arrays.first, into.begin());
                      kernels::FlatRange momentum;
                      momentum.numel = here.numel;
                      momentum.gradients = gradients;
                      momentum.gradient_scale = scale * clip_factor_;
                      momentum.first = into;
                      momentum.second = arrays.second;
                      optimizers_.front().mix(momentum, settings_.betas);
                  });
}

// The update of a host on its own.
void ZeroState::step_alone(int b, const ChunkPart& part, const Range& range,
                           const ChunkView& view) {
    for_gradients(b, part, range, view,
                  [&](const Range& here, std::span<const float* const> gradients, float scale) {
                      kernels::FlatRange update = arrays_of(b, part, view, here);
                      update.gradients = gradients;
                      update.gradient_scale = scale * clip_factor_;
                      optimizers_.front().update(update, settings_.lr, 1, settings_.betas,
                                                 Exchange::kNone);
                  });
}

kernels::LocalMoves ZeroState::moves_of(int b, const ChunkPart& part,
                                        const kernels::FlatRange& arrays, const Range& range) {
    const OwnedPiece& piece = place_.map->pieces(b)[part.piece];
    const std::span<float> meeting = meeting_[b][part.piece].values();
    kernels::LocalMoves moves;
    moves.numel = range.numel;
    if (!arrays.parameters.empty()) moves.parameters = arrays.parameters.data();
    moves.meeting = meeting.data() + range.begin - piece.range.begin;
    moves.momentum = arrays.first.data();
    moves.variance = arrays.second.data();
    moves.eps = static_cast<float>(options_.optimizer.eps);
    moves.decay = static_cast<float>(options_.optimizer.weight_decay);
    return moves;
}

void ZeroState::give_moves(int b, const ChunkPart& part, const Range& range, const ChunkView& view,
                           std::span<float> values) {
    const kernels::FlatRange arrays = arrays_of(b, part, view, range);
    kernels::local_moves(moves_of(b, part, arrays, range), values.data() + range.begin);
}

void ZeroState::take_average(int b, const ChunkPart& part, const Range& range,
                             const ChunkView& view) {
    const std::span<const float> averaged = exchange_->averaged(b);
    if (place_.plan->exchange == Exchange::kMoves)
        return take_moves(b, part, range, view, averaged, rates_since_ + settings_.lr);
    const float* const values = averaged.data() + range.begin;
    kernels::FlatRange update = arrays_of(b, part, view, range);
    update.gradients = {&values, 1};
    optimizers_.front().update(update, settings_.lr, 1, settings_.betas, place_.plan->exchange);
}

void ZeroState::take_moves(int b, const ChunkPart& part, const Range& range, const ChunkView& view,
                           std::span<const float> averaged, double rates) {
    const kernels::FlatRange arrays = arrays_of(b, part, view, range);
    kernels::take_moves(moves_of(b, part, arrays, range), averaged.data() + range.begin,
                        static_cast<float>(rates));
    if (!arrays.half_parameters.empty())
        queue().to_half(arrays.parameters.data(), arrays.half_parameters.data(), range.numel,
                        options_.dtype);
}

void ZeroState::meet() {
    settle_rates();
    // All ranks have stepped with the same rates.
    if (meeting_.empty() || rates_since_ == 0) return;
    settle();
    collectives_.barrier();
    for (int b = 0; b < place_.layout->trained_buckets; ++b) meet_in(b);
    collectives_.barrier();
    rates_since_ = 0;
}

void ZeroState::meet_in(int b) {
    runs_ = find_runs(b, /*counts=*/false);
    exchange_bucket(b, [&](const ChunkPart& part, const Range& range, const ChunkView& view,
                           std::span<float> values) { give_moves(b, part, range, view, values); });
    const std::span<const float> averaged = exchange_->averaged(b);
    for (const int c : states_->chunks_of(b)) {
        const std::optional<ChunkView> view = states_->view_at_rest(c);
        for (const ChunkPart& part : states_->parts(c))
            for (const Run& run : runs_) {
                const Range both = intersect(run.range, part.range);
                if (both.numel > 0) take_moves(b, part, both, *view, averaged, rates_since_);
            }
    }
    exchange_->end();
}

Bytes ZeroState::compression_bytes() const {
    if (!exchange_) return {};
    Bytes bytes = exchange_->bytes();
    for (const std::vector<ZeroedFloats>& of_bucket : meeting_)
        for (const ZeroedFloats& piece : of_bucket)
            bytes += Bytes{std::ssize(piece.values()) * int64_t{sizeof(float)}};
    return bytes;
}

}  // namespace dslaunch::zero

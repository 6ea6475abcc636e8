#include "zero/update/averaged_path.h"

#include <algorithm>
#include <utility>

#include "kernels/one_bit.h"
#include "runtime/schedules/exchange_schedule.h"

namespace dslaunch::zero {

using plan::Exchange;

AveragedPath::AveragedPath(RankParts& parts, const runtime::Arena& arena)
    : UpdatePath(parts),
      exchange_(*parts.place().map, parts.slices().exchange, arena, parts.group(),
                parts.collectives()) {
    if (parts.options().saved != nullptr) exchange_.load(*parts.options().saved);
}

// Updates rates_since_ for the last step: adds the step's learning rate if hosts stepped alone, or
// sets rates_since_ to 0 if they exchanged moves. Does nothing if the step was skipped.
void AveragedPath::settle_rates() {
    const Exchange last = std::exchange(last_exchange_, Exchange::kExact);
    if (parts_.now().overflow) return;
    if (last == Exchange::kNone) rates_since_ += parts_.now().settings.lr;
    if (last == Exchange::kMoves) rates_since_ = 0;
}

// Begins a step. After the first update that hosts make on their own, they exchange changes of
// parameters, no longer gradients. The rounding errors of gradients do not apply to these changes,
// so they are cleared.
void AveragedPath::begin_step(const runtime::StepSettings& next) {
    settle_rates();
    const Exchange exchange = last_exchange_ = parts_.place().plan->exchange;
    if (next.update == runtime::ExchangeSchedule::first_alone(parts_.options().optimizer)) {
        for (int b = 0; b < parts_.place().layout->trained_buckets; ++b) allow_changes(b);
        exchange_.clear();
    }
    const bool alone = exchange == Exchange::kNone || exchange == Exchange::kMoves;
    if (alone && meeting_.empty()) remember_meeting();
}

// Stores the parameters while they are still equal on all hosts. Called before the first step that
// hosts take alone.
void AveragedPath::remember_meeting() {
    const ShardMap& map = *parts_.place().map;
    for (int b = 0; b < parts_.place().layout->trained_buckets; ++b) {
        std::vector<ZeroedFloats>& of_bucket = meeting_.emplace_back();
        for (const OwnedPiece& piece : map.pieces(b)) of_bucket.emplace_back(piece.range.numel);
        // At stage 0 other ranks write some of these parameters.
        if (!map.is_gathered(b)) parts_.parameters().await_whole(b, parts_.now().number);
        for (const int c : parts_.states().chunks_of(b)) {
            const std::optional<ChunkView> view = parts_.states().view_at_rest(c);
            for (const ChunkPart& part : parts_.states().parts(c)) {
                const kernels::FlatRange arrays = parts_.arrays_of(b, part, *view, part.range);
                const float* const from = !arrays.parameters.empty()
                                              ? arrays.parameters.data()
                                              : arrays.decay_parameters.data();
                std::copy_n(from, part.range.numel, moves_of(b, part, arrays, part.range).meeting);
            }
        }
    }
}

int AveragedPath::error_unit(int b) const {
    return static_cast<int>(std::ssize(parts_.place().plan->chunks.all)) + b;
}

// Waits until the states and errors of a bucket may change. A save may still need their old values.
void AveragedPath::allow_changes(int b) {
    if (parts_.guard() == nullptr) return;
    for (const int c : parts_.states().chunks_of(b)) parts_.guard()->before_update(c);
    parts_.guard()->before_update(error_unit(b));
}

void AveragedPath::run(const plan::Instruction& instruction) {
    DSL_CHECK(instruction.op == plan::Op::kExchange, "{}", plan::op_name(instruction.op));
    if (parts_.now().overflow) return;
    const int b = instruction.bucket;
    parts_.gradients().open(b);
    parts_.open_runs(b);
    exchange_bucket(b, [&](const ChunkPart& part, const Range& range, const ChunkView& view,
                           std::span<float> values) { fill_values(b, part, range, view, values); });
}

// Exchanges a bucket: calls fill(part, range, view, values) for the elements that this rank
// contributes, and starts the exchange. Parameters that have never had a gradient contribute 0.
template <typename Fill>
void AveragedPath::exchange_bucket(int b, Fill&& fill) {
    allow_changes(b);
    const std::span<float> values = exchange_.begin(b);
    const bool all = parts_.runs().cover(parts_.bucket(b));
    for (const int c : parts_.states().chunks_of(b)) {
        const std::optional<ChunkView> view = parts_.states().view_at_rest(c);
        DSL_CHECK(view.has_value(), "chunk {} is not in memory", c);
        for (const ChunkPart& part : parts_.states().parts(c))
            if (!all && parts_.writes(b, part))
                std::fill_n(values.data() + part.range.begin, part.range.numel, 0.0F);
        for_each_run(c, /*writes=*/true, [&](const ChunkPart& part, const Run&, const Range& both) {
            fill(part, both, *view, values);
        });
    }
    exchange_.average(b);
}

void AveragedPath::fill_values(int b, const ChunkPart& part, const Range& range,
                               const ChunkView& view, std::span<float> values) {
    const Exchange exchange = parts_.place().plan->exchange;
    const std::optional<config::Betas>& betas = parts_.now().settings.betas;
    ShardOptimizer& optimizer = parts_.optimizer(0);
    const auto fill = [&](const Range& here, std::span<const float* const> gradients, float scale) {
        const std::span<float> into =
            values.subspan(static_cast<size_t>(here.begin), static_cast<size_t>(here.numel));
        const float factor = scale * parts_.now().clip_factor;
        if (exchange == Exchange::kGradient)
            return parts_.queue().ordered_sum(gradients, factor, into.data(), here.numel);
        kernels::FlatRange update = parts_.arrays_of(b, part, view, here);
        update.gradients = gradients;
        update.gradient_scale = factor;
        // A host first makes this step on its own. Then give_moves() gives its moves to the
        // exchange.
        if (exchange == Exchange::kMoves)
            return optimizer.update(update, parts_.now().settings.lr, 1, betas, Exchange::kNone);
        std::ranges::copy(update.first, into.begin());
        kernels::FlatRange momentum;
        momentum.numel = here.numel;
        momentum.gradients = gradients;
        momentum.gradient_scale = factor;
        momentum.first = into;
        momentum.second = update.second;
        optimizer.mix(momentum, betas);
    };
    parts_.for_gradients(b, part, range, view, fill);
    if (exchange == Exchange::kMoves) give_moves(b, part, range, view, values);
}

kernels::LocalMoves AveragedPath::moves_of(int b, const ChunkPart& part,
                                           const kernels::FlatRange& arrays, const Range& range) {
    const OwnedPiece& piece = parts_.place().map->pieces(b)[part.piece];
    const std::span<float> meeting = meeting_[b][part.piece].values();
    kernels::LocalMoves moves;
    moves.numel = range.numel;
    if (!arrays.parameters.empty()) moves.parameters = arrays.parameters.data();
    moves.meeting = meeting.data() + range.begin - piece.range.begin;
    moves.momentum = arrays.first.data();
    moves.variance = arrays.second.data();
    moves.eps = static_cast<float>(parts_.options().optimizer.eps);
    moves.decay = static_cast<float>(parts_.options().optimizer.weight_decay);
    return moves;
}

void AveragedPath::give_moves(int b, const ChunkPart& part, const Range& range,
                              const ChunkView& view, std::span<float> values) {
    const kernels::FlatRange arrays = parts_.arrays_of(b, part, view, range);
    kernels::local_moves(moves_of(b, part, arrays, range), values.data() + range.begin);
}

void AveragedPath::update(const plan::Instruction& chunk, const ChunkView& view, bool writes) {
    const int b = chunk.bucket;
    const Exchange exchange = parts_.place().plan->exchange;
    const double lr = parts_.now().settings.lr;
    for_each_run(
        chunk.chunk, writes, [&](const ChunkPart& part, const Run& run, const Range& range) {
            if (parts_.runs().rule(run).optimizer.needs_whole_tensors()) return;
            const std::span<const float> averaged = exchange_.averaged(b);
            if (exchange == Exchange::kMoves)
                return take_moves(b, part, range, view, averaged, rates_since_ + lr);
            const float* const values = averaged.data() + range.begin;
            kernels::FlatRange update = parts_.arrays_of(b, part, view, range);
            update.gradients = {&values, 1};
            parts_.optimizer(0).update(update, lr, 1, parts_.now().settings.betas, exchange);
        });
}

void AveragedPath::take_moves(int b, const ChunkPart& part, const Range& range,
                              const ChunkView& view, std::span<const float> averaged,
                              double rates) {
    const kernels::FlatRange arrays = parts_.arrays_of(b, part, view, range);
    kernels::take_moves(moves_of(b, part, arrays, range), averaged.data() + range.begin,
                        static_cast<float>(rates));
    if (!arrays.half_parameters.empty())
        parts_.queue().to_half(arrays.parameters.data(), arrays.half_parameters.data(), range.numel,
                               parts_.options().dtype);
}

void AveragedPath::meet() {
    settle_rates();
    // All ranks have used the same rates, so either all return here or no rank does.
    if (meeting_.empty() || rates_since_ == 0) return;
    parts_.settle();
    parts_.collectives().barrier();
    for (int b = 0; b < parts_.place().layout->trained_buckets; ++b) meet_in(b);
    parts_.collectives().barrier();
    rates_since_ = 0;
}

void AveragedPath::meet_in(int b) {
    parts_.open_runs(b, /*counts=*/false);
    exchange_bucket(b, [&](const ChunkPart& part, const Range& range, const ChunkView& view,
                           std::span<float> values) { give_moves(b, part, range, view, values); });
    const std::span<const float> averaged = exchange_.averaged(b);
    for (const int c : parts_.states().chunks_of(b)) {
        const std::optional<ChunkView> view = parts_.states().view_at_rest(c);
        for (const bool writes : {false, true})
            for_each_run(c, writes, [&](const ChunkPart& part, const Run&, const Range& both) {
                take_moves(b, part, both, *view, averaged, rates_since_);
            });
    }
    exchange_.end();
}

std::vector<std::string> AveragedPath::state_names() const {
    return exchange_.state_names();
}

void AveragedPath::add_pieces(int chunk, int first, std::vector<runtime::SavedPiece>& pieces) {
    if (chunk < 0) exchange_.add_pieces(first, error_unit(0), pieces);
}

void AveragedPath::add_memory(runtime::MemoryAccount& account) const {
    account.moments += exchange_.bytes();
    for (const std::vector<ZeroedFloats>& of_bucket : meeting_)
        for (const ZeroedFloats& piece : of_bucket)
            account.moments += Bytes{std::ssize(piece.values()) * int64_t{sizeof(float)}};
}

}  // namespace dslaunch::zero

// The part of the lagging path that chooses the important units, keeps their states, and saves the
// choice and the states.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "storage/checkpoint/manifest.h"
#include "zero/update/lagging_path.h"

namespace dslaunch::zero {

namespace {

// Spans are distributed over threads, so they must not be too long.
constexpr int64_t kSpanNumelMax = int64_t{64} * 1024;

}  // namespace

// Carries out Select. Every rank chooses among the units that it updates; a unit is never divided
// between ranks.
void LaggingPath::select() {
    const bool added =
        parts_.place().plan_options->keeps_reduced() && parts_.place().map->stage() > 0;
    if (!parts_.now().overflow) {
        if (!added) add_squares_in_order();
        choose();
    }
    for (Units& units : units_) std::ranges::fill(units.squares, 0.0);
}

// Adds the squares of GRADIENTS to the sums of their units. REQUIRES: the elements of a unit come
// in order.
void LaggingPath::add_squares(int b, const Range& range, const float* gradients) {
    const int64_t unit_numel = parts_.place().plan_options->lag.unit_numel;
    for_each_slice(*parts_.place().layout, b, range,
                   [&](int i, const Range& elements, int64_t begin) {
                       if (units_[i].all) return;
                       const float* values = gradients + (begin - range.begin);
                       for (int64_t at = elements.begin; at < elements.end();) {
                           const int64_t unit = at / unit_numel;
                           const int64_t end = std::min(elements.end(), (unit + 1) * unit_numel);
                           double& sum = units_[i].squares[static_cast<size_t>(unit)];
                           for (; at < end; ++at, ++values)
                               sum += double{*values} * double{*values};
                       }
                   });
}

// Adds the squares in the same order on all ranks. At stage 0 a rank's pieces are not in the order
// of their elements.
void LaggingPath::add_squares_in_order() {
    struct Part {
        int chunk;
        ChunkPart part;
    };
    for (int b = 0; b < parts_.place().layout->trained_buckets; ++b) {
        parts_.gradients().open(b);
        std::vector<Part> parts;
        for (const int c : parts_.states().chunks_of(b))
            for (const ChunkPart& part : parts_.states().parts(c)) parts.push_back({c, part});
        std::ranges::sort(parts, {}, [](const Part& part) { return part.part.range.begin; });
        for (const Part& part : parts) {
            ChunkView view;
            if (parts_.place().plan_options->keeps_reduced())
                view = *parts_.states().view_at_rest(part.chunk);
            parts_.for_gradients(b, part.part, part.part.range, view,
                                 [&](const Range& range, std::span<const float* const> terms,
                                     float) { add_squares(b, range, terms.front()); });
        }
    }
}

// Chooses the units with the largest sums of squares. If sums are equal, the first unit wins. A
// chunk uses the new choice from its next take_choice() on.
void LaggingPath::choose() {
    const plan::LagPlan& lag = parts_.place().plan_options->lag;
    const int64_t in_block = parts_.place().layout->block_numel / lag.unit_numel;
    std::vector<int64_t> order;
    for (Units& units : units_) {
        if (units.all) continue;
        const auto count = std::ssize(units.important);
        for (int64_t first = 0; first < count; first += in_block) {
            const int64_t here = std::min(in_block, count - first);
            order.resize(static_cast<size_t>(here));
            std::iota(order.begin(), order.end(), first);
            const auto chosen = order.begin() + plan::important_units(here, lag.important);
            std::partial_sort(order.begin(), chosen, order.end(), [&](int64_t a, int64_t b) {
                const double of_a = units.squares[static_cast<size_t>(a)];
                const double of_b = units.squares[static_cast<size_t>(b)];
                return of_a != of_b ? of_a > of_b : a < b;
            });
            std::fill_n(units.important.begin() + first, here, 0);
            for (auto unit = order.begin(); unit != chosen; ++unit)
                units.important[static_cast<size_t>(*unit)] = 1;
        }
    }
    ++choice_number_;
}

std::vector<LaggingPath::Span> LaggingPath::make_spans(int c) const {
    const int64_t unit_numel = parts_.place().plan_options->lag.unit_numel;
    StateStore& states = parts_.states();
    std::vector<Span> spans;
    // If the chunk is not in memory between steps, the path keeps the states of the chunk's
    // important spans. All parts of such a chunk pass through a swap buffer.
    int64_t kept_at = states.view_at_rest(c).has_value() ? -1 : 0;
    const std::vector<ChunkPart>& parts = states.parts(c);
    for (int p = 0; p < static_cast<int>(parts.size()); ++p) {
        const ChunkPart& part = parts[static_cast<size_t>(p)];
        const auto cut = [&](int i, const Range& elements, int64_t begin) {
            const std::vector<char>& important = units_[i].important;
            for (int64_t at = elements.begin; at < elements.end();) {
                int64_t unit = at / unit_numel;
                const bool is = important[static_cast<size_t>(unit)] != 0;
                const int64_t limit = std::min(elements.end(), at + kSpanNumelMax);
                int64_t end = at;
                for (; end < limit && (important[static_cast<size_t>(unit)] != 0) == is; ++unit)
                    end = std::min(limit, (unit + 1) * unit_numel);
                const Range range{begin + at - elements.begin, end - at};
                Span span{range, part.offset_numel + range.begin - part.range.begin, p, i, is};
                if (is && kept_at >= 0) {
                    span.kept_at = kept_at;
                    kept_at += round_up(range.numel, plan::kSliceAlignmentNumel);
                }
                spans.push_back(span);
                at = end;
            }
        };
        for_each_slice(*parts_.place().layout, states.chunk(c).bucket, part.range, cut);
    }
    return spans;
}

// Returns a view of the states that are kept for an important span, to be used instead of the
// chunk's states.
ChunkView LaggingPath::kept(int c, const Span& span) {
    Chunk& chunk = chunks_[c];
    ChunkView view;
    for (size_t k = 0; k < chunk.moments.size(); ++k)
        view.moments[k] = chunk.moments[k].values().data() + span.kept_at;
    if (parts_.place().plan_options->master)
        view.master = chunk.master.values().data() + span.kept_at;
    return view;
}

// Copies the states that are kept for a chunk's important spans to VIEW.
void LaggingPath::overlay(int c, const ChunkView& view) const {
    const Chunk& chunk = chunks_[c];
    for (const Span& span : chunk.spans) {
        if (span.kept_at < 0) continue;
        const auto copy = [&](const ZeroedFloats& from, float* into) {
            std::copy_n(from.values().data() + span.kept_at, span.range.numel,
                        into + span.in_chunk);
        };
        for (size_t k = 0; k < chunk.moments.size(); ++k) copy(chunk.moments[k], view.moments[k]);
        if (parts_.place().plan_options->master) copy(chunk.master, view.master);
    }
}

// Divides the chunk into spans by the last choice. First copies the kept states back to VIEW, so
// that VIEW has all states, then keeps the states of the new important spans. REQUIRES: no gradient
// waits.
void LaggingPath::take_choice(int c, const ChunkView& view) {
    Chunk& chunk = chunks_[c];
    if (chunk.choice_number == choice_number_) return;
    const bool master = parts_.place().plan_options->master;
    overlay(c, view);
    chunk.spans = make_spans(c);
    chunk.choice_number = choice_number_;
    int64_t kept_numel = 0;
    for (const Span& span : chunk.spans) {
        if (span.kept_at >= 0)
            kept_numel = span.kept_at + round_up(span.range.numel, plan::kSliceAlignmentNumel);
        std::fill_n(waiting(c) + span.in_chunk, span.range.numel, span.important ? -0.0F : 0.0F);
    }
    if (std::ssize(chunk.moments[0].values()) != kept_numel) {
        for (ZeroedFloats& moments : chunk.moments) moments = ZeroedFloats(kept_numel);
        if (master) chunk.master = ZeroedFloats(kept_numel);
    }
    for (const Span& span : chunk.spans) {
        if (span.kept_at < 0) continue;
        const ChunkView into = kept(c, span);
        const auto copy = [&](const float* from, float* to) {
            std::copy_n(from + span.in_chunk, span.range.numel, to);
        };
        for (size_t k = 0; k < chunk.moments.size(); ++k) copy(view.moments[k], into.moments[k]);
        if (master) copy(view.master, into.master);
    }
}

std::vector<std::string> LaggingPath::state_names() const {
    std::vector<std::string> names = {
        fmt::format("{}{}", due_ ? storage::kLaggingDue : storage::kLagging, waits_)};
    const bool changed = std::ranges::any_of(
        chunks_, [&](const Chunk& chunk) { return chunk.choice_number != choice_number_; });
    if (changed) names.emplace_back(storage::kLaggingChoice);
    return names;
}

const float* LaggingPath::saved_values(int c, size_t k) {
    Chunk& chunk = chunks_[c];
    if (k == 0) return chunk.waiting.values().data();
    if (chunk.choice.values().empty()) {
        chunk.choice = ZeroedFloats(parts_.states().chunk(c).range.numel);
        for (const Span& span : make_spans(c))
            std::fill_n(chunk.choice.values().data() + span.in_chunk, span.range.numel,
                        span.important ? 1.0F : 0.0F);
    }
    return chunk.choice.values().data();
}

void LaggingPath::add_memory(runtime::MemoryAccount& account) const {
    int64_t gradients = 0, kept = 0;
    for (const Chunk& chunk : chunks_) {
        gradients += std::ssize(chunk.waiting.values()) + std::ssize(chunk.later.values());
        kept += 2 * std::ssize(chunk.moments[0].values()) + std::ssize(chunk.master.values());
    }
    account.gradients += Bytes{gradients * int64_t{sizeof(float)}};
    account.moments += Bytes{kept * int64_t{sizeof(float)}};
}

}  // namespace dslaunch::zero

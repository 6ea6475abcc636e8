#include "zero/states/lagging_rest.h"

#include <ATen/core/Tensor.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "base/check.h"
#include "base/text.h"
#include "storage/checkpoint/manifest.h"

namespace dslaunch::zero {

namespace {

// Spans are shared out among threads.
constexpr int64_t kSpanNumelMax = int64_t{64} * 1024;

bool is_mark(float value) {
    return value == 0.0F && std::signbit(value);
}

}  // namespace

LaggingRest::LaggingRest(const graph::Model& model, const plan::FlatLayout& layout,
                         const plan::StepPlanOptions& options, const ShardMap& map,
                         StateStore& states)
    : layout_(layout),
      lag_(options.lag),
      map_(map),
      states_(states),
      master_(options.master),
      units_(static_cast<size_t>(layout.trained_slices)) {
    DSL_CHECK(layout.block_numel % lag_.unit_numel == 0, "units of {} elements in blocks of {}",
              lag_.unit_numel, layout.block_numel);
    for (int i = 0; i < layout.trained_slices; ++i) {
        const plan::ParameterSlice& slice = layout.slices[i];
        const auto units =
            static_cast<size_t>((slice.numel + lag_.unit_numel - 1) / lag_.unit_numel);
        units_[i].all = model.parameters()[slice.parameter].tensor.dim() < 2;
        units_[i].important.assign(units, static_cast<char>(units_[i].all));
        if (!units_[i].all) units_[i].squares.assign(units, 0);
    }
    for (int b = 0; b < layout.trained_buckets; ++b)
        for (const int c : states.chunks_of(b)) {
            chunks_.resize(std::max(chunks_.size(), static_cast<size_t>(c) + 1));
            const int64_t numel = states.chunk(c).range.numel;
            chunks_[c].waiting = ZeroedFloats(numel);
            if (lag_.overlaps)
                chunks_[c].later = ZeroedFloats((numel * options.parameter_bytes + 3) / 4);
        }
}

template <typename Use>
void LaggingRest::for_each_slice(int b, const Range& range, Use&& use) const {
    const plan::Bucket& bucket = layout_.buckets[b];
    for (int i = bucket.first_slice; i < bucket.end_slice; ++i) {
        const plan::ParameterSlice& slice = layout_.slices[i];
        const int64_t begin = slice.offset_numel - bucket.offset_numel;
        const Range both = intersect(range, {begin, slice.numel});
        if (both.numel > 0) use(i, Range{both.begin - begin, both.numel}, both.begin);
    }
}

void LaggingRest::add_squares(int b, const Range& range, const float* gradients) {
    for_each_slice(b, range, [&](int i, const Range& elements, int64_t begin) {
        if (units_[i].all) return;
        const float* values = gradients + (begin - range.begin);
        for (int64_t at = elements.begin; at < elements.end();) {
            const int64_t unit = at / lag_.unit_numel;
            const int64_t end = std::min(elements.end(), (unit + 1) * lag_.unit_numel);
            double& sum = units_[i].squares[static_cast<size_t>(unit)];
            for (; at < end; ++at, ++values) sum += double{*values} * double{*values};
        }
    });
}

void LaggingRest::choose() {
    const int64_t in_block = layout_.block_numel / lag_.unit_numel;
    std::vector<int64_t> order;
    for (Units& units : units_) {
        if (units.all) continue;
        const auto count = std::ssize(units.important);
        for (int64_t first = 0; first < count; first += in_block) {
            const int64_t here = std::min(in_block, count - first);
            order.resize(static_cast<size_t>(here));
            std::iota(order.begin(), order.end(), first);
            const auto chosen = order.begin() + plan::important_units(here, lag_.important);
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
    drop_squares();
    ++choice_number_;
}

void LaggingRest::drop_squares() {
    for (Units& units : units_) std::ranges::fill(units.squares, 0.0);
}

// A chunk that no plan keeps in memory has only what passes.
bool LaggingRest::is_kept_here(int c) const {
    return !states_.view_at_rest(c).has_value();
}

std::vector<LagSpan> LaggingRest::make_spans(int c) const {
    const int b = states_.chunk(c).bucket;
    std::vector<LagSpan> spans;
    int64_t kept_at = is_kept_here(c) ? 0 : -1;
    const std::vector<ChunkPart>& parts = states_.parts(c);
    for (int p = 0; p < static_cast<int>(parts.size()); ++p) {
        const ChunkPart& part = parts[static_cast<size_t>(p)];
        for_each_slice(b, part.range, [&](int i, const Range& elements, int64_t begin) {
            const std::vector<char>& important = units_[i].important;
            for (int64_t at = elements.begin; at < elements.end();) {
                int64_t unit = at / lag_.unit_numel;
                const bool is = important[static_cast<size_t>(unit)] != 0;
                const int64_t limit = std::min(elements.end(), at + kSpanNumelMax);
                int64_t end = at;
                for (; end < limit && (important[static_cast<size_t>(unit)] != 0) == is; ++unit)
                    end = std::min(limit, (unit + 1) * lag_.unit_numel);
                const int64_t in_bucket = begin + at - elements.begin;
                LagSpan span{{in_bucket, end - at},
                             part.offset_numel + in_bucket - part.range.begin,
                             p,
                             i,
                             is,
                             -1};
                if (is && kept_at >= 0) {
                    span.kept_at = kept_at;
                    kept_at += round_up(span.range.numel, plan::kSliceAlignmentNumel);
                }
                spans.push_back(span);
                at = end;
            }
        });
    }
    return spans;
}

ChunkView LaggingRest::kept(int c, const LagSpan& span) {
    Chunk& chunk = chunks_[c];
    ChunkView view;
    for (size_t k = 0; k < view.moments.size(); ++k)
        view.moments[k] = chunk.moments[k].values().data() + span.kept_at;
    if (master_) view.master = chunk.master.values().data() + span.kept_at;
    return view;
}

void LaggingRest::overlay(int c, const ChunkView& view) const {
    const Chunk& chunk = chunks_[c];
    for (const LagSpan& span : chunk.spans) {
        if (span.kept_at < 0) continue;
        const auto copy = [&](const ZeroedFloats& from, float* into) {
            std::copy_n(from.values().data() + span.kept_at, span.range.numel,
                        into + span.in_chunk);
        };
        for (size_t k = 0; k < view.moments.size(); ++k) copy(chunk.moments[k], view.moments[k]);
        if (master_) copy(chunk.master, view.master);
    }
}

void LaggingRest::take_choice(int c, const ChunkView& view) {
    Chunk& chunk = chunks_[c];
    if (chunk.choice_number == choice_number_) return;
    overlay(c, view);
    chunk.spans = make_spans(c);
    chunk.choice_number = choice_number_;
    int64_t kept_numel = 0;
    for (const LagSpan& span : chunk.spans) {
        if (span.kept_at >= 0)
            kept_numel = span.kept_at + round_up(span.range.numel, plan::kSliceAlignmentNumel);
        std::fill_n(waiting(c) + span.in_chunk, span.range.numel, span.important ? -0.0F : 0.0F);
    }
    if (std::ssize(chunk.moments[0].values()) != kept_numel) {
        for (ZeroedFloats& moments : chunk.moments) moments = ZeroedFloats(kept_numel);
        if (master_) chunk.master = ZeroedFloats(kept_numel);
    }
    for (const LagSpan& span : chunk.spans) {
        if (span.kept_at < 0) continue;
        const ChunkView into = kept(c, span);
        const auto copy = [&](const float* from, float* to) {
            std::copy_n(from + span.in_chunk, span.range.numel, to);
        };
        for (size_t k = 0; k < into.moments.size(); ++k) copy(view.moments[k], into.moments[k]);
        if (master_) copy(view.master, into.master);
    }
}

void LaggingRest::hold(int c) {
    Chunk& chunk = chunks_[c];
    chunk.holds = true;
    chunk.holds_spans = chunk.choice_number == choice_number_;
    if (!chunk.holds_spans) chunk.held = chunk.spans;
}

const std::vector<LagSpan>& LaggingRest::landing(int c) const {
    const Chunk& chunk = chunks_[c];
    return chunk.holds && chunk.holds_spans ? chunk.spans : chunk.held;
}

void LaggingRest::landed(int c) {
    chunks_[c].holds = false;
    chunks_[c].held.clear();
}

std::vector<std::string> LaggingRest::state_names() const {
    std::vector<std::string> names = {
        fmt::format("{}{}", due_ ? storage::kLaggingDue : storage::kLagging, waits_)};
    const bool changed = std::ranges::any_of(
        chunks_, [&](const Chunk& chunk) { return chunk.choice_number != choice_number_; });
    if (changed) names.emplace_back(storage::kLaggingChoice);
    return names;
}

const float* LaggingRest::saved_values(int c, size_t k) {
    Chunk& chunk = chunks_[c];
    if (k == 0) return chunk.waiting.values().data();
    if (chunk.choice.values().empty()) {
        chunk.choice = ZeroedFloats(states_.chunk(c).range.numel);
        for (const LagSpan& span : make_spans(c))
            std::fill_n(chunk.choice.values().data() + span.in_chunk, span.range.numel,
                        span.important ? 1.0F : 0.0F);
    }
    return chunk.choice.values().data();
}

void LaggingRest::begin(runtime::SavedState* saved) {
    choice_number_ = 1;
    if (saved != nullptr) load(*saved);
    for (int b = 0; b < layout_.trained_buckets; ++b)
        for (const int c : states_.chunks_of(b))
            if (chunks_[c].choice_number < 0)
                states_.visit(c, [&](const ChunkView& view) { take_choice(c, view); });
    states_.set_overlay([this](int c, const ChunkView& view) { overlay(c, view); });
}

// Marks tell the choice under which the gradients waited.
void LaggingRest::load(runtime::SavedState& saved) {
    const std::vector<std::string>& names = saved.checkpoint().states;
    const auto index_of = [&](std::string_view begin) {
        const auto found = std::ranges::find_if(
            names, [&](const std::string& name) { return name.starts_with(begin); });
        return found == names.end() ? -1 : static_cast<int>(found - names.begin());
    };
    const int due = index_of(storage::kLaggingDue);
    const int waits = due >= 0 ? due : index_of(storage::kLagging);
    if (waits < 0) return;
    const std::string& name = names[static_cast<size_t>(waits)];
    waits_ = parse_int(name.substr(name.rfind('.') + 1)).value_or(0);
    const int choice = index_of(storage::kLaggingChoice);
    const auto for_each_part = [&](int state, auto&& use) {
        std::vector<float> values;
        for (int b = 0; b < layout_.trained_buckets; ++b)
            for (const int c : states_.chunks_of(b))
                for (const ChunkPart& part : states_.parts(c))
                    for_each_slice(b, part.range, [&](int i, const Range& elements, int64_t begin) {
                        const int parameter = layout_.slices[i].parameter;
                        if (!saved.has_states(parameter)) return;
                        values.resize(static_cast<size_t>(elements.numel));
                        saved.read_state(parameter, state, elements, values.data());
                        use(c, i, elements, part.offset_numel + begin - part.range.begin, values);
                    });
    };
    const auto set_choice = [&](int i, const Range& elements, auto&& is_important) {
        if (units_[i].all) return;
        for (int64_t at = elements.begin; at < elements.end();) {
            const int64_t unit = at / lag_.unit_numel;
            units_[i].important[static_cast<size_t>(unit)] =
                static_cast<char>(is_important(at - elements.begin));
            at = (unit + 1) * lag_.unit_numel;
        }
    };
    for_each_part(
        waits, [&](int, int i, const Range& elements, int64_t, const std::vector<float>& values) {
            set_choice(i, elements,
                       [&](int64_t at) { return is_mark(values[static_cast<size_t>(at)]); });
        });
    for (int b = 0; b < layout_.trained_buckets; ++b)
        for (const int c : states_.chunks_of(b))
            states_.visit(c, [&](const ChunkView& view) { take_choice(c, view); });
    for_each_part(
        waits, [&](int c, int, const Range&, int64_t in_chunk, const std::vector<float>& values) {
            std::ranges::copy(values, waiting(c) + in_chunk);
        });
    due_ = due >= 0 && lag_.overlaps;
    if (choice < 0) return;
    for_each_part(choice, [&](int, int i, const Range& elements, int64_t,
                              const std::vector<float>& values) {
        set_choice(i, elements, [&](int64_t at) { return values[static_cast<size_t>(at)] != 0; });
    });
    ++choice_number_;
}

Bytes LaggingRest::waiting_bytes() const {
    int64_t numel = 0;
    for (const Chunk& chunk : chunks_)
        numel += std::ssize(chunk.waiting.values()) + std::ssize(chunk.later.values());
    return Bytes{numel * int64_t{sizeof(float)}};
}

Bytes LaggingRest::kept_bytes() const {
    int64_t numel = 0;
    for (const Chunk& chunk : chunks_)
        numel += 2 * std::ssize(chunk.moments[0].values()) + std::ssize(chunk.master.values());
    return Bytes{numel * int64_t{sizeof(float)}};
}

}  // namespace dslaunch::zero

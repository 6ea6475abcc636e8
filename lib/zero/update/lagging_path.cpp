#include "zero/update/lagging_path.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/text.h"
#include "kernels/flat_optimizer.h"
#include "storage/checkpoint/manifest.h"

namespace dslaunch::zero {

LaggingPath::LaggingPath(RankParts& parts)
    : UpdatePath(parts), units_(static_cast<size_t>(parts.place().layout->trained_slices)) {
    const plan::StepPlanOptions& options = *parts.place().plan_options;
    const plan::FlatLayout& layout = *parts.place().layout;
    const int64_t unit_numel = options.lag.unit_numel;
    DSL_CHECK(layout.block_numel % unit_numel == 0,
              "units of {} elements do not divide blocks of {} elements", unit_numel,
              layout.block_numel);
    for (int i = 0; i < layout.trained_slices; ++i) {
        const plan::ParameterSlice& slice = layout.slices[i];
        const auto units = static_cast<size_t>((slice.numel + unit_numel - 1) / unit_numel);
        units_[i].all = parts.model().parameters()[slice.parameter].tensor.dim() < 2;
        units_[i].important.assign(units, static_cast<char>(units_[i].all));
        if (!units_[i].all) units_[i].squares.assign(units, 0);
    }
    for_each_chunk([&](int c) {
        chunks_.resize(std::max(chunks_.size(), static_cast<size_t>(c) + 1));
        const int64_t numel = parts.states().chunk(c).range.numel;
        chunks_[c].waiting = ZeroedFloats(numel);
        if (options.lag.overlaps)
            chunks_[c].later = ZeroedFloats((numel * options.parameter_bytes + 3) / 4);
    });
    if (parts.options().saved != nullptr) load(*parts.options().saved);
    for_each_chunk([&](int c) {
        if (chunks_[c].choice_number < 0)
            parts.states().visit(c, [&](const ChunkView& view) { take_choice(c, view); });
    });
    parts.states().set_overlay([this](int c, const ChunkView& view) { overlay(c, view); });
}

template <typename Use>
void LaggingPath::for_each_chunk(Use&& use) const {
    for (int b = 0; b < parts_.place().layout->trained_buckets; ++b)
        for (const int c : parts_.states().chunks_of(b)) use(c);
}

// Reads the waiting gradients from SAVED. They also contain the choice of units that was in use
// while they were collected: -0 marks important units.
void LaggingPath::load(runtime::SavedState& saved) {
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
    const plan::LagPlan& lag = parts_.place().plan_options->lag;
    const auto for_each_part = [&](int state, auto&& use) {
        std::vector<float> values;
        for_each_chunk([&](int c) {
            const int b = parts_.states().chunk(c).bucket;
            for (const ChunkPart& part : parts_.states().parts(c))
                for_each_slice(*parts_.place().layout, b, part.range,
                               [&](int i, const Range& elements, int64_t begin) {
                                   const int parameter = parts_.place().layout->slices[i].parameter;
                                   if (!saved.has_states(parameter)) return;
                                   values.resize(static_cast<size_t>(elements.numel));
                                   saved.read_state(parameter, state, elements, values.data());
                                   use(c, i, elements, part.offset_numel + begin - part.range.begin,
                                       values);
                               });
        });
    };
    const auto read_choice = [&](int state, auto&& is_important) {
        for_each_part(state, [&](int, int i, const Range& elements, int64_t,
                                 const std::vector<float>& values) {
            for (int64_t at = elements.begin; at < elements.end() && !units_[i].all;) {
                const int64_t unit = at / lag.unit_numel;
                units_[i].important[static_cast<size_t>(unit)] = static_cast<char>(
                    is_important(values[static_cast<size_t>(at - elements.begin)]));
                at = (unit + 1) * lag.unit_numel;
            }
        });
    };
    read_choice(waits, [](float value) { return value == 0.0F && std::signbit(value); });
    for_each_chunk([&](int c) {
        parts_.states().visit(c, [&](const ChunkView& view) { take_choice(c, view); });
    });
    for_each_part(
        waits, [&](int c, int, const Range&, int64_t in_chunk, const std::vector<float>& values) {
            std::ranges::copy(values, waiting(c) + in_chunk);
        });
    due_ = due >= 0 && lag.overlaps;
    if (choice < 0) return;
    read_choice(choice, [](float value) { return value != 0; });
    ++choice_number_;
}

void LaggingPath::take_sums(int c, const float* sums) {
    if (!parts_.place().plan->lag.selects || parts_.place().map->stage() == 0) return;
    for (const ChunkPart& part : parts_.states().parts(c))
        add_squares(parts_.states().chunk(c).bucket, part.range, sums + part.offset_numel);
}

void LaggingPath::know_norm(bool finite) {
    const plan::LagPlan& lag = parts_.place().plan->lag;
    // The late updates of this step are complete.
    if (lag.kind == plan::Lag::kLate && due_) waits_ = 0, due_ = false;
    waited_ = waits_;
    if (!finite) return;
    const bool whole = lag.kind == plan::Lag::kWhole;
    waits_ = whole ? 0 : waited_ + 1;
    due_ = !whole && (due_ || lag.fills);
}

void LaggingPath::run(const plan::Instruction& instruction) {
    instruction.op == plan::Op::kSelect ? select() : update_rest_late(instruction);
}

// Replaces the bucket's parameters by the results of its late updates.
void LaggingPath::begin_bucket(int b) {
    land(b);
    // The updates read parameters that other ranks have just replaced in their begin_bucket().
    if (parts_.reads_replicas()) parts_.meet(b, 2 * parts_.now().number);
    if (parts_.now().overflow) return;
    parts_.open_runs(b);
    const plan::Bucket& bucket = parts_.bucket(b);
    used_.assign(static_cast<size_t>(bucket.end_slice - bucket.first_slice), 0);
    for (const Run& run : parts_.runs().now())
        for_each_slice(*parts_.place().layout, b, run.range, [&](int i, const Range&, int64_t) {
            used_[static_cast<size_t>(i - bucket.first_slice)] = 1;
        });
}

void LaggingPath::update(const plan::Instruction& instruction, const ChunkView& view, bool writes) {
    const int c = instruction.chunk;
    forget_saved(c);
    updates_.clear();
    sources_.clear();
    for (const Span& span : chunks_[c].spans)
        if (parts_.writes(instruction.bucket, part_of(c, span)) == writes)
            add_update(c, span, view);
    for (size_t k = 0; k < updates_.size(); ++k) updates_[k].range.gradients = {&sources_[k], 1};
    parts_.queue().adam_steps(updates_);
}

void LaggingPath::end_chunk(int c, const ChunkView& view) {
    if (parts_.place().plan->lag.kind != plan::Lag::kWhole) return;
    for (const Span& span : chunks_[c].spans)
        if (waited_ > 0 && !span.important)
            parts_.queue().fill(waiting(c) + span.in_chunk, 0, span.range.numel);
    take_choice(c, view);
}

void LaggingPath::add_update(int c, const Span& span, const ChunkView& view) {
    const int b = parts_.states().chunk(c).bucket;
    const auto first = static_cast<size_t>(parts_.bucket(b).first_slice);
    const float sign = parts_.options().optimizer.maximize ? -1.0F : 1.0F;
    const auto take = [&](const Range& range, std::span<const float* const> terms, float scale) {
        DSL_CHECK(terms.size() == 1, "a sum has {} terms, expected one", terms.size());
        Span here = span;
        here.range = range;
        here.in_chunk += range.begin - span.range.begin;
        if (span.kept_at >= 0) here.kept_at += range.begin - span.range.begin;
        take_gradients(c, here, view, terms.front(), sign * scale * parts_.now().clip_factor);
    };
    if (used_[static_cast<size_t>(span.slice) - first] != 0)
        parts_.for_gradients(b, part_of(c, span), span.range, view, take);
    const bool rest_is_due = parts_.place().plan->lag.kind == plan::Lag::kWhole && waited_ > 0;
    if (span.important || !rest_is_due || parts_.runs().updates_of(span.slice) == 0) return;
    kernels::AdamUpdate& update = updates_.emplace_back();
    update.range = arrays_of(c, span, view);
    update.range.gradient_scale = 1.0F / static_cast<float>(waited_ + 1);
    update.step = step_of(span, waited_ + 1);
    sources_.push_back(waiting(c) + span.in_chunk);
}

// Uses a span's GRADIENTS for an update at once, or adds them to the waiting gradients.
void LaggingPath::take_gradients(int c, const Span& span, const ChunkView& view,
                                 const float* gradients, float scale) {
    const bool at_once = parts_.place().plan->lag.kind == plan::Lag::kWhole && waited_ == 0;
    if (!span.important && !at_once)
        return parts_.queue().accumulate_sum({&gradients, 1}, scale, waiting(c) + span.in_chunk,
                                             span.range.numel);
    kernels::AdamUpdate& update = updates_.emplace_back();
    update.range = arrays_of(c, span, view);
    update.range.gradient_scale = scale;
    update.step = step_of(span, 1);
    sources_.push_back(gradients);
}

// Makes the late updates of a chunk, at the same time as the step's computation, which reads the
// parameters. So the new parameters are stored apart until land().
void LaggingPath::update_rest_late(const plan::Instruction& instruction) {
    if (!due_) return;
    const int b = instruction.bucket;
    const int c = instruction.chunk;
    if (parts_.guard() != nullptr) parts_.guard()->before_update(c);
    forget_saved(c);
    // L2 decay reads parameters that other ranks wrote in the last step.
    if (parts_.reads_replicas()) parts_.parameters().await_whole(b, parts_.now().number - 1);
    const ChunkView view = parts_.states().view(instruction);
    const int64_t element_bytes = dtype_bytes(parts_.options().dtype);
    for (const Span& span : chunks_[c].spans) {
        if (span.important) continue;
        kernels::FlatRange update = arrays_of(c, span, view);
        const auto numel = static_cast<size_t>(span.range.numel);
        if (parts_.writes(b, part_of(c, span))) {
            std::byte* const into = later(c) + span.in_chunk * element_bytes;
            std::memcpy(into, parts_.parameters().kept(b, span.range.begin),
                        numel * static_cast<size_t>(element_bytes));
            if (parts_.half()) {
                update.half_parameters = {reinterpret_cast<uint16_t*>(into), numel};
            } else {
                update.parameters = {reinterpret_cast<float*>(into), numel};
            }
        }
        if (parts_.runs().updates_of(span.slice) == 0) continue;
        float* const waits = waiting(c) + span.in_chunk;
        const float* const gradients = waits;
        update.gradients = {&gradients, 1};
        update.gradient_scale = 1.0F / static_cast<float>(waits_);
        kernels::adam_step(update, step_of(span, waits_));
        std::fill_n(waits, span.range.numel, 0.0F);
    }
    Chunk& chunk = chunks_[c];
    chunk.holds = true;
    chunk.holds_spans = chunk.choice_number == choice_number_;
    if (!chunk.holds_spans) chunk.held = chunk.spans;
    take_choice(c, view);
    if (instruction.buffer >= 0) parts_.states().set_changed(instruction.buffer);
}

void LaggingPath::land(int b) {
    const auto element_bytes = static_cast<size_t>(dtype_bytes(parts_.options().dtype));
    for (const int c : parts_.states().chunks_of(b)) {
        Chunk& chunk = chunks_[c];
        for (const Span& span : chunk.holds&& chunk.holds_spans ? chunk.spans : chunk.held)
            if (!span.important && parts_.writes(b, part_of(c, span)))
                std::memcpy(parts_.parameters().kept(b, span.range.begin),
                            later(c) + static_cast<size_t>(span.in_chunk) * element_bytes,
                            static_cast<size_t>(span.range.numel) * element_bytes);
        chunk.holds = false;
        chunk.held.clear();
    }
}

kernels::AdamStep LaggingPath::step_of(const Span& span, int64_t steps) const {
    const auto slice = static_cast<size_t>(span.slice);
    const int parameter = parts_.place().layout->slices[slice].parameter;
    const Run run{{}, 1, parts_.options().rules.index_of(parameter), -1};
    return parts_.optimizer(run.rule).adam(parts_.rate(run), parts_.runs().updates_of(span.slice),
                                           parts_.now().settings.betas, steps);
}

// Returns the arrays for an update of SPAN. VIEW is the chunk's view. If the chunk is on disk, the
// states of an important span are kept elsewhere.
kernels::FlatRange LaggingPath::arrays_of(int c, const Span& span, const ChunkView& view) {
    const int b = parts_.states().chunk(c).bucket;
    if (span.kept_at < 0) return parts_.arrays_of(b, part_of(c, span), view, span.range);
    const ChunkView own = kept(c, span);
    const auto numel = static_cast<size_t>(span.range.numel);
    kernels::FlatRange update = parts_.arrays_of(b, part_of(c, span), ChunkView{}, span.range);
    update.first = {own.moments[0], numel};
    update.second = {own.moments[1], numel};
    if (own.master != nullptr) update.parameters = {own.master, numel};
    return update;
}

}  // namespace dslaunch::zero

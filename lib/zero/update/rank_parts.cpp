#include "zero/update/rank_parts.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "zero/parameters/host_values.h"

namespace dslaunch::zero {

namespace {

ZeroOptions with_rule(ZeroOptions options) {
    if (options.rules.rules.empty()) options.rules.rules = {UpdateRule{options.optimizer}};
    return options;
}

std::vector<int64_t> steps_before(const plan::FlatLayout& layout, runtime::SavedState* saved) {
    std::vector<int64_t> steps(static_cast<size_t>(layout.trained_slices), 0);
    for (size_t i = 0; saved != nullptr && i < steps.size(); ++i)
        steps[i] = saved->updates(layout.slices[i].parameter);
    return steps;
}

std::vector<ShardOptimizer> optimizers_of(const ZeroOptions& options, device::Queue& queue) {
    std::vector<ShardOptimizer> optimizers;
    for (const UpdateRule& rule : options.rules.rules)
        optimizers.emplace_back(rule.optimizer, queue);
    return optimizers;
}

GradientOptions gradient_options(const plan::StepPlanOptions& plan, const ZeroOptions& options) {
    return {plan.keeps_reduced(), options.usage_varies, options.tensor,    plan.reduce_packing(),
            plan.keeps_errors(),  plan.wire.predivide,  options.adds_ranks};
}

// Returns the function that gives the moments their first values: the saved state's, or without
// one the optimizer's.
StateStore::FillMoments first_moments(const ZeroPlace& place, const ZeroOptions& options) {
    runtime::SavedState* const saved = options.saved;
    const float initial = ShardOptimizer::initial_state(options.optimizer);
    if (initial == 0 && saved == nullptr) return {};
    const plan::FlatLayout& layout = *place.layout;
    device::Device& device = *place.device.device;
    return [&layout, &device, saved, initial](int b, size_t k, const Range& range, float* into) {
        if (k == 0 && initial != 0) device.compute().fill(into, initial, range.numel);
        for_each_slice(layout, b, range, [&](int i, const Range& elements, int64_t begin) {
            const int parameter = layout.slices[i].parameter;
            if (saved == nullptr || !saved->has_states(parameter)) return;
            write_from_host(device, into + begin - range.begin,
                            elements.numel * int64_t{sizeof(float)}, [&](std::byte* host) {
                                saved->read_state(parameter, static_cast<int>(k), elements,
                                                  reinterpret_cast<float*>(host));
                            });
        });
    };
}

}  // namespace

RankParts::RankParts(graph::Model& of, const ZeroPlace& at, const ZeroSlices& arena_slices,
                     const runtime::Arena& arena, runtime::HostGroup& of_host,
                     runtime::Collectives& all, const ZeroOptions& given, OffloadFile* offload)
    : model(of),
      place(at),
      slices(arena_slices),
      group(of_host),
      collectives(all),
      options(with_rule(given)),
      slice_steps(steps_before(*at.layout, given.saved)),
      optimizers(optimizers_of(options, queue())),
      first_step(given.saved == nullptr ? 0 : given.saved->training().step),
      states(*at.plan, *at.plan_options, *at.map, device(), offload, first_moments(at, options)),
      parameters(of, *at.map, slices.parameters, options.dtype, at.device, arena, group,
                 collectives, states, given.saved),
      gradients(of, *at.map, slices.gradients, at.plan->gradient_buffer_of_bucket, at.device,
                collectives, gradient_options(*at.plan_options, options)) {
    collectives.barrier();
    states.begin();
    follow(*at.plan);
}

void RankParts::meet(int b, int64_t generation) {
    group.post(slices.replicas[b], static_cast<uint32_t>(generation));
    group.await_all(slices.replicas[b], static_cast<uint32_t>(generation));
}

void RankParts::settle() {
    for (int b = 0; b < place.layout->trained_buckets; ++b)
        if (!place.map->is_gathered(b)) parameters.await_whole(b, now.number);
}

// Follows PLAN. Plans of a job differ in the sums that are made, and in who makes them.
void RankParts::follow(const plan::StepPlan& plan) {
    place.plan = &plan;
    SumScope scope;
    scope.fused = std::ranges::none_of(plan.instructions, [](const plan::Instruction& instruction) {
        return instruction.op == plan::Op::kReduce;
    });
    scope.on_host = plan.exchange != plan::Exchange::kExact;
    gradients.set_scope(scope);
}

std::vector<Run> RankParts::find_runs(int b, bool counts) {
    // Ranks whose hosts do not sum gradients in full know only of which parameters had one before.
    const bool knows = place.plan->exchange == plan::Exchange::kExact;
    const std::vector<float> used = knows ? gradients.used(b) : std::vector<float>();
    std::vector<Run> found;
    for (int i = bucket(b).first_slice; i < bucket(b).end_slice; ++i) {
        if (knows ? used[i - bucket(b).first_slice] <= 0 : slice_steps[i] == 0) continue;
        const plan::ParameterSlice& slice = place.layout->slices[i];
        const int64_t step = counts ? ++slice_steps[i] : slice_steps[i];
        const Range range{slice.offset_numel - bucket(b).offset_numel,
                          round_up(slice.numel, plan::kSliceAlignmentNumel)};
        const Run run{range, step, options.rules.index_of(slice.parameter), i};
        const bool extends =
            !found.empty() && found.back().step == step && found.back().rule == run.rule &&
            found.back().range.end() == range.begin && !rule(run).optimizer.needs_whole_tensors();
        if (extends) {
            found.back().range.numel += range.numel;
        } else {
            found.push_back(run);
        }
    }
    return found;
}

bool RankParts::runs_cover(int b) const {
    int64_t covered = 0;
    for (const Run& run : runs) covered += run.range.numel;
    return covered >= bucket(b).numel;
}

kernels::FlatRange RankParts::arrays_of(int b, const ChunkPart& part, const ChunkView& view,
                                        const Range& range) const {
    const bool writes_it = writes(b, part);
    const int64_t at = part.offset_numel + range.begin - part.range.begin;
    kernels::FlatRange update;
    update.numel = range.numel;
    std::byte* values = nullptr;
    if (view.parameters != nullptr) {
        values = view.parameters + at * dtype_bytes(options.dtype);
    } else if (writes_it || !half()) {
        values = parameters.kept(b, range.begin);
    }
    const auto numel = static_cast<size_t>(range.numel);
    const auto from = [&](float* first) {
        return first == nullptr ? std::span<float>() : std::span(first + at, numel);
    };
    update.first = from(view.moments[0]);
    update.second = from(view.moments[1]);
    update.packed = view.packed;
    update.packed.begin = at;
    if (!view.packed.any()) update.packed.numel = at + range.numel;
    update.packed.seed =
        static_cast<uint32_t>(now.settings.step) * 0x9E3779B1U + view.packed.seed * 0xC2B2AE35U;
    if (without_masters()) {
        if (writes_it) update.packed.parameters = reinterpret_cast<uint16_t*>(values);
    } else if (half()) {
        update.parameters = from(view.master);
        if (values != nullptr)
            update.half_parameters = {reinterpret_cast<uint16_t*>(values), numel};
        update.half_dtype = options.dtype;
    } else if (writes_it) {
        update.parameters = {reinterpret_cast<float*>(values), numel};
    } else {
        update.decay_parameters = {reinterpret_cast<const float*>(values), numel};
    }
    return update;
}

}  // namespace dslaunch::zero

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

// Returns the function that writes the first values of moments: from the saved state if there is
// one, else the optimizer's initial values.
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
    : model_(of),
      place_(at),
      slices_(arena_slices),
      group_(of_host),
      collectives_(all),
      options_(with_rule(given)),
      first_step_(given.saved == nullptr ? 0 : given.saved->training().step),
      optimizers_(optimizers_of(options_, queue())),
      states_(*at.plan, *at.plan_options, *at.map, device(), offload, first_moments(at, options_)),
      parameters_(of, *at.map, slices_.parameters, options_.dtype, at.device, arena, group_,
                  collectives_, states_, given.saved),
      gradients_(of, *at.map, slices_.gradients, at.plan->gradient_buffer_of_bucket, at.device,
                 collectives_, gradient_options(*at.plan_options, options_)),
      runs_(*at.layout, options_.rules, given.saved) {
    collectives_.barrier();
    states_.begin();
    follow(*at.plan);
}

void RankParts::meet(int b, int64_t generation) {
    group_.post(slices_.replicas[b], static_cast<uint32_t>(generation));
    group_.await_all(slices_.replicas[b], static_cast<uint32_t>(generation));
}

void RankParts::settle() {
    for (int b = 0; b < place_.layout->trained_buckets; ++b)
        if (!place_.map->is_gathered(b)) parameters_.await_whole(b, now_.number);
}

// Switches to PLAN, and sets the scope in which PLAN sums gradients.
void RankParts::follow(const plan::StepPlan& plan) {
    place_.plan = &plan;
    SumScope scope;
    scope.fused = std::ranges::none_of(plan.instructions, [](const plan::Instruction& instruction) {
        return instruction.op == plan::Op::kReduce;
    });
    scope.on_host = plan.exchange != plan::Exchange::kExact;
    gradients_.set_scope(scope);
}

void RankParts::begin_step(const runtime::StepSettings& settings) {
    now_ = {settings.step - first_step_, settings, static_cast<float>(1.0 / settings.loss_scale),
            std::nullopt};
}

void RankParts::open_runs(int b, bool counts) {
    // If hosts do not sum gradients in full, a rank does not know which parameters have a gradient
    // in this step. Then the parameters that were updated before count as used.
    const bool knows = place_.plan->exchange == plan::Exchange::kExact;
    runs_.open(bucket(b), knows ? gradients_.used(b) : std::vector<float>(), counts);
}

kernels::FlatRange RankParts::arrays_of(int b, const ChunkPart& part, const ChunkView& view,
                                        const Range& range) const {
    const bool writes_it = writes(b, part);
    const int64_t at = part.offset_numel + range.begin - part.range.begin;
    kernels::FlatRange update;
    update.numel = range.numel;
    std::byte* values = nullptr;
    if (view.parameters != nullptr) {
        values = view.parameters + at * dtype_bytes(options_.dtype);
    } else if (writes_it || !half()) {
        values = parameters_.kept(b, range.begin);
    }
    const auto numel = static_cast<size_t>(range.numel);
    const auto from = [&](float* first) {
        return first == nullptr ? std::span<float>() : std::span(first + at, numel);
    };
    update.first = from(view.moments[0]);
    update.second = from(view.moments[1]);
    update.third = from(view.moments[2]);
    update.packed = view.packed;
    update.packed.begin = at;
    if (!view.packed.any()) update.packed.numel = at + range.numel;
    update.packed.seed =
        static_cast<uint32_t>(now_.settings.step) * 0x9E3779B1U + view.packed.seed * 0xC2B2AE35U;
    if (without_masters()) {
        if (writes_it) update.packed.parameters = reinterpret_cast<uint16_t*>(values);
    } else if (half()) {
        update.parameters = from(view.master);
        if (values != nullptr)
            update.half_parameters = {reinterpret_cast<uint16_t*>(values), numel};
        update.half_dtype = options_.dtype;
    } else if (writes_it) {
        update.parameters = {reinterpret_cast<float*>(values), numel};
    } else {
        update.decay_parameters = {reinterpret_cast<const float*>(values), numel};
    }
    return update;
}

}  // namespace dslaunch::zero

#include "zero/zero_state.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/schedules/exchange_schedule.h"
#include "storage/checkpoint/manifest.h"
#include "zero/parameters/host_values.h"

namespace dslaunch::zero {

ZeroSlices ZeroState::add_slices(const ZeroPlace& place, DType dtype, runtime::ArenaLayout& arena) {
    ZeroSlices slices;
    slices.parameters =
        ParameterStore::add_slices(*place.map, dtype, place.plan->gather_buffer_numel, arena);
    slices.gradients =
        GradientSums::add_slices(*place.layout, place.plan->gradient_buffer_of_bucket,
                                 place.plan->gradient_buffer_numel, arena);
    slices.norm = GradientNorm::add_slices(*place.layout, *place.map, arena);
    for (int b = 0; b < place.layout->trained_buckets; ++b)
        slices.replicas.push_back(arena.add_signal(fmt::format("replicas of bucket {}", b)));
    if (place.plan_options->compression.errors)
        slices.exchange = CompressedExchange::add_slices(*place.layout, arena);
    return slices;
}

ZeroState::ZeroState(graph::Model& model, const ZeroPlace& place, const ZeroSlices& slices,
                     const runtime::Arena& arena, runtime::HostGroup& group,
                     runtime::Collectives& collectives, const ZeroOptions& options,
                     OffloadFile* offload)
    : model_(model),
      place_(place),
      slices_(slices),
      group_(group),
      collectives_(collectives),
      options_(options),
      offload_(offload),
      slice_steps_(static_cast<size_t>(place.layout->trained_slices), 0) {
    const plan::StepPlanOptions& plan = *place.plan_options;
    const ShardMap& map = *place.map;
    DSL_CHECK(device().is_host() || map.topology().local_world_size() == 1,
              "ranks share the memory of a device");
    states_.emplace(*place.plan, plan, map, device(), offload);
    start_moments(options.saved);
    if (options_.rules.rules.empty()) options_.rules.rules = {UpdateRule{options.optimizer}};
    for (const UpdateRule& rule : options_.rules.rules)
        optimizers_.emplace_back(rule.optimizer, queue());
    tensor_optimizer_.emplace(device(), queue(), whole_tensor_numel_max());
    tensor_states_.emplace(options.optimizer, model, map);
    if (options.saved != nullptr) tensor_states_->load(*options.saved);
    parameters_.emplace(model, map, slices.parameters, options.dtype, place.device, arena, group,
                        collectives, *states_, options.saved);
    collectives.barrier();
    states_->begin();
    if (options.skip_overflow)
        nonfinite_ = device().allocate(Bytes{place.layout->trained_slices * int64_t{4}},
                                       "flags of gradients");
    gradients_.emplace(model, map, slices.gradients, place.plan->gradient_buffer_of_bucket,
                       place.device, collectives,
                       GradientOptions{plan.keeps_reduced(), options.usage_varies, options.tensor,
                                       plan.reduce_packing(), plan.keeps_errors(),
                                       plan.wire.predivide, options.adds_ranks});
    follow_plan();
    norm_.emplace(map, place.partition, slices.norm, arena, group, collectives);
    if (plan.norm_first() && plan.keeps_reduced())
        chunk_norm_.emplace(norm_->blocks(), *states_, map.layout(), queue());
    if (plan.compression.errors) {
        exchange_.emplace(map, slices.exchange, arena, group, collectives);
        if (options.saved != nullptr) exchange_->load(*options.saved);
    }
    if (plan.lag.on) {
        lagging_.emplace(model, *place.layout, plan, map, *states_);
        lagging_->begin(options.saved);
    } else if (options.saved != nullptr && map.topology().rank() == 0 &&
               std::ranges::any_of(options.saved->checkpoint().states, storage::is_lagging_state)) {
        log_warn("resume",
                 "the gradients that wait in the checkpoint are left out: its run had "
                 "zero_optimization.zenflow, and this one has not");
    }
    device().compute().finish();
}

// Elements of the largest tensor that this rank updates as a whole.
int64_t ZeroState::whole_tensor_numel_max() const {
    int64_t numel = 0;
    for (int i = 0; i < place_.layout->trained_slices; ++i) {
        const plan::ParameterSlice& slice = place_.layout->slices[i];
        const int rule = options_.rules.index_of(slice.parameter);
        if (!options_.rules.rules[static_cast<size_t>(rule)].optimizer.needs_whole_tensors())
            continue;
        const int b = place_.layout->bucket_of(i);
        const int64_t begin = slice.offset_numel - bucket(b).offset_numel;
        for (const OwnedPiece& piece : place_.map->pieces(b))
            if (intersect(piece.range, {begin, slice.numel}).numel > 0)
                numel = std::max(numel, slice.numel);
    }
    return numel;
}

void ZeroState::change_plan(const plan::StepPlan& plan) {
    place_.plan = &plan;
    states_->change_plan(plan);
    follow_plan();
}

// Plans of a job differ in what is summed, and by whom.
void ZeroState::follow_plan() {
    SumScope scope;
    scope.fused = std::ranges::none_of(
        place_.plan->instructions,
        [](const plan::Instruction& instruction) { return instruction.op == plan::Op::kReduce; });
    scope.on_host = place_.plan->exchange != plan::Exchange::kExact;
    gradients_->set_scope(scope);
}

// The moments start from SAVED, and without it with the optimizer's initial values.
void ZeroState::start_moments(runtime::SavedState* saved) {
    if (saved != nullptr) {
        first_step_ = saved->training().step;
        for (size_t i = 0; i < slice_steps_.size(); ++i)
            slice_steps_[i] = saved->updates(place_.layout->slices[i].parameter);
    }
    const float initial = ShardOptimizer::initial_state(options_.optimizer);
    if (initial == 0 && saved == nullptr) return;
    states_->set_moments([this, saved, initial](int b, size_t k, const Range& range, float* into) {
        if (k == 0 && initial != 0) device().compute().fill(into, initial, range.numel);
        for_each_slice(b, range, [&](int i, const Range& elements, int64_t at) {
            const int parameter = place_.layout->slices[i].parameter;
            if (saved == nullptr || !saved->has_states(parameter)) return;
            write_from_host(device(), into + at, elements.numel * int64_t{sizeof(float)},
                            [&](std::byte* host) {
                                saved->read_state(parameter, static_cast<int>(k), elements,
                                                  reinterpret_cast<float*>(host));
                            });
        });
    });
}

void ZeroState::begin_step(const runtime::StepSettings& settings) {
    settle_rates();
    settings_ = settings;
    step_ = settings.step - first_step_;
    clip_factor_ = static_cast<float>(1.0 / settings.loss_scale);
    overflow_.reset();
    if (options_.skip_overflow)
        device().compute().fill(nonfinite_.floats().data(), 0, std::ssize(nonfinite_.floats()));
    gradients_->begin_step();
    states_->begin_step(settings.logged);
    if (exchange_) begin_alone();
}

void ZeroState::run(const plan::Instruction& instruction) {
    const int b = instruction.bucket;
    switch (instruction.op) {
        case plan::Op::kAwait:
            return parameters_->await_whole(b, step_ - 1);
        case plan::Op::kGather:
            // A gather in place follows this step's update. A gather into a buffer serves this
            // step's reads.
            if (instruction.buffer < 0) return parameters_->gather_in_place(b, step_);
            return parameters_->gather(b, instruction.buffer, step_ - 1,
                                       place_.plan_options->gather_packing(bucket(b)));
        case plan::Op::kRelease:
            return parameters_->release(b, instruction.buffer);
        case plan::Op::kClaim:
            return gradients_->claim(b);
        case plan::Op::kPost:
            return post(b);
        case plan::Op::kReduce:
            return gradients_->reduce(instruction, settings_.step);
        case plan::Op::kAccumulate:
            return accumulate(instruction);
        case plan::Op::kNorm:
            return compute_norm();
        case plan::Op::kExchange:
            return exchange(instruction);
        case plan::Op::kSelect:
            return select();
        case plan::Op::kUpdateRest:
            return update_rest_late(instruction);
        case plan::Op::kUpdate:
            return update(instruction);
        case plan::Op::kRead:
            if (instruction.chunk < 0) return parameters_->bring(b, instruction.buffer);
            return states_->read(instruction);
        case plan::Op::kWrite:
            return states_->write(instruction);
        default:
            DSL_CHECK(false, "{} is not for the ZeRO state", plan::op_name(instruction.op));
    }
}

void ZeroState::settle() {
    for (int b = 0; b < place_.layout->trained_buckets; ++b)
        if (!place_.map->is_gathered(b)) parameters_->await_whole(b, step_);
}

std::span<float> ZeroState::tied_gradients(int b) {
    const std::span<float> values = gradients_->complete_tied(b);
    look_for_overflow(b);
    return values;
}

void ZeroState::post(int b) {
    // A tied bucket holds other stages' gradients by now.
    if (bucket(b).kind != plan::BucketKind::kTied) look_for_overflow(b);
    gradients_->post(b);
}

// With a loss scale, an overflow must be traced to its rank. Later sums no longer show the rank.
void ZeroState::look_for_overflow(int b) {
    if (!options_.skip_overflow) return;
    std::vector<device::Values> gradients;  // by slice, empty if it has none
    for (int i = bucket(b).first_slice; i < bucket(b).end_slice; ++i) {
        const plan::ParameterSlice& slice = place_.layout->slices[i];
        device::Values& values = gradients.emplace_back();
        if (gradients_->has_gradient(i))
            values = {gradients_->own(b).data() + slice.offset_numel - bucket(b).offset_numel,
                      slice.numel};
    }
    device().compute().flag_nonfinite(gradients,
                                      nonfinite_.floats().data() + bucket(b).first_slice);
}

// The model's first parameter whose own gradient is not finite in this step, or -1.
int ZeroState::first_bad_parameter() {
    std::vector<float> flags(nonfinite_.floats().size());
    queue().copy_out(flags.data(), nonfinite_.floats().data(), std::ssize(nonfinite_.bytes()));
    int first = -1;
    for (size_t i = 0; i < flags.size(); ++i) {
        const int parameter = place_.layout->slices[i].parameter;
        if (flags[i] != 0 && (first < 0 || parameter < first)) first = parameter;
    }
    return first;
}

void ZeroState::accumulate(const plan::Instruction& instruction) {
    const int b = instruction.bucket;
    const int c = instruction.chunk;
    const std::span<const int> chunks = states_->chunks_of(b);
    if (c == chunks.front()) gradients_->begin_accumulate(b);
    float* const sums = states_->sums_of(instruction, gradients_->first_micro_step());
    for (const ChunkPart& part : states_->parts(c))
        gradients_->accumulate(b, part.range, sums + part.offset_numel);
    const bool complete = instruction.micro_step + 1 == place_.plan_options->accumulation_steps;
    if (complete && chunk_norm_) chunk_norm_->add(c, sums);
    if (complete && place_.plan->lag.selects && place_.map->stage() > 0)
        for (const ChunkPart& part : states_->parts(c))
            lagging_->add_squares(b, part.range, sums + part.offset_numel);
    if (c == chunks.back()) gradients_->end_accumulate(b);
}

std::vector<double> ZeroState::block_squares() {
    for (int b = 0; b < place_.layout->trained_buckets; ++b) gradients_->open(b);
    std::vector<float> whole(static_cast<size_t>(place_.layout->block_numel));
    std::vector<double> squares;
    std::vector<device::Values> blocks;  // that are not summed yet
    const auto sum = [&] {
        const std::vector<double> sums = queue().sums_of_squares(blocks);
        squares.insert(squares.end(), sums.begin(), sums.end());
        blocks.clear();
    };
    for (const NormBlock& block : norm_->blocks()) {
        // A block may lie in two parts of a reduced bucket; it is summed as one.
        bool in_parts = false;
        gradients_->for_each_in(
            block.bucket, block.range,
            [&](const Range& range, std::span<const float* const> terms, float) {
                if (range == block.range) return blocks.push_back({terms[0], range.numel});
                in_parts = true;
                std::copy_n(terms[0], range.numel,
                            whole.begin() + (range.begin - block.range.begin));
            });
        if (!in_parts) continue;
        blocks.push_back({whole.data(), block.range.numel});
        sum();  // the next one takes its place
    }
    sum();
    return squares;
}

void ZeroState::compute_norm() {
    const GradientNorm::Result result = norm_->compute(
        step_, chunk_norm_ ? chunk_norm_->take() : block_squares(), options_.pipeline,
        options_.tensor, place_.plan->exchange != plan::Exchange::kExact);
    const double norm = std::sqrt(result.squares) / settings_.loss_scale;
    norm_value_ = norm;
    if (lagging_) count_waiting(std::isfinite(result.squares));
    if (!std::isfinite(result.squares)) return note_overflow(result.bad_parameter);
    if (options_.gradient_clipping <= 0) return;
    // The factor is that of torch.nn.utils.clip_grad_norm_.
    const double factor = options_.gradient_clipping / (norm + 1e-6);
    if (factor < 1) clip_factor_ = static_cast<float>(factor / settings_.loss_scale);
}

void ZeroState::note_overflow(int bad_parameter) {
    if (!options_.skip_overflow) {
        fail(ExitCode::kDiverged,
             "the gradient of {} is not finite in step {}: training has diverged; lower the "
             "learning rate or look at the data of this step{}",
             bad_parameter < 0 ? "the whole model" : model_.parameters()[bad_parameter].name,
             settings_.step,
             place_.plan_options->reduce_packing() == WirePacking::kF16
                 ? "; or a sum was too large for fp16 between hosts: take communication_data_type "
                   "bf16, or prescale_gradients"
                 : "");
    }
    overflow_ = runtime::Overflow{bad_parameter, -1};
    states_->skip_step();
    runtime::Collectives& all =
        options_.pipeline.job != nullptr ? *options_.pipeline.job : collectives_;
    const std::vector<std::string> own = all.all_gather(std::to_string(first_bad_parameter()));
    for (size_t rank = 0; rank < own.size(); ++rank) {
        const int parameter = std::stoi(own[rank]);
        const bool earlier =
            parameter >= 0 && (overflow_->rank < 0 || parameter < overflow_->parameter);
        if (earlier) overflow_ = runtime::Overflow{parameter, static_cast<int>(rank)};
    }
}

// COUNTS: the update of this step is one more.
std::vector<ZeroState::Run> ZeroState::find_runs(int b, bool counts) {
    // Ranks whose hosts do not sum gradients in full know only of which parameters had one before.
    const bool knows = place_.plan->exchange == plan::Exchange::kExact;
    const std::vector<float> used = knows ? gradients_->used(b) : std::vector<float>();
    std::vector<Run> runs;
    for (int i = bucket(b).first_slice; i < bucket(b).end_slice; ++i) {
        if (knows ? used[i - bucket(b).first_slice] <= 0 : slice_steps_[i] == 0) continue;
        const plan::ParameterSlice& slice = place_.layout->slices[i];
        const int64_t step = counts ? ++slice_steps_[i] : slice_steps_[i];
        const Range range{slice.offset_numel - bucket(b).offset_numel,
                          round_up(slice.numel, plan::kSliceAlignmentNumel)};
        const Run run{range, step, options_.rules.index_of(slice.parameter), i};
        const bool extends =
            !runs.empty() && runs.back().step == step && runs.back().rule == run.rule &&
            runs.back().range.end() == range.begin && !rule(run).optimizer.needs_whole_tensors();
        if (extends) {
            runs.back().range.numel += range.numel;
        } else {
            runs.push_back(run);
        }
    }
    return runs;
}

void ZeroState::update(const plan::Instruction& instruction) {
    const int b = instruction.bucket;
    const std::span<const int> chunks = states_->chunks_of(b);
    const int c = instruction.chunk;
    if (c == chunks.front()) {
        gradients_->open(b);
        if (lagging_) {
            land(b);
            await_landing(b);
        }
        // An exchange before this has found them.
        if (!overflow_ && !plan::is_compressed(place_.plan->exchange)) runs_ = find_runs(b);
    }
    if (!overflow_) {
        update_chunk(instruction);
        if (instruction.buffer >= 0) states_->set_changed(instruction.buffer);
    }
    if (c != chunks.back()) return;
    if (!overflow_ && plan::is_compressed(place_.plan->exchange)) exchange_->end();
    parameters_->post_updated(b, step_);
    gradients_->close(b);
}

bool ZeroState::covers(std::span<const Run> runs, int64_t numel) {
    int64_t covered = 0;
    for (const Run& run : runs) covered += run.range.numel;
    return covered >= numel;
}

void ZeroState::update_chunk(const plan::Instruction& instruction) {
    const int c = instruction.chunk;
    const int b = instruction.bucket;
    if (guard_ != nullptr) guard_->before_update(c);
    if (lagging_) return update_lagging_chunk(instruction);
    const ChunkView view = states_->view(instruction);
    const auto update_parts = [&](bool writes) {
        for (const ChunkPart& part : states_->parts(c))
            if (place_.map->pieces(b)[part.piece].writes == writes)
                for (const Run& run : runs_) update_part(instruction, part, run, view);
    };
    // 16-bit parameters on disk are not read, so those of slices without a gradient are made again.
    const bool makes_all = half() && view.parameters != nullptr;
    if (makes_all && !covers(runs_, bucket(b).numel))
        for (const ChunkPart& part : states_->parts(c))
            queue().to_half(view.master + part.offset_numel,
                            reinterpret_cast<uint16_t*>(view.parameters) + part.offset_numel,
                            part.range.numel, options_.dtype);
    // The replicas of elements that other ranks write come first: L2 decay reads the parameters of
    // before the step.
    update_parts(false);
    await_replicas(b);
    update_parts(true);
}

void ZeroState::await_replicas(int b) {
    if (!reads_replicas()) return;
    meet(b, static_cast<uint32_t>(2 * step_ + 1));
}

// Replicas read what other ranks land.
void ZeroState::await_landing(int b) {
    if (reads_replicas()) meet(b, static_cast<uint32_t>(2 * step_));
}

void ZeroState::meet(int b, uint32_t generation) {
    group_.post(slices_.replicas[b], generation);
    group_.await_all(slices_.replicas[b], generation);
}

// Tells the witness of an update.
void ZeroState::show(const plan::Instruction& instruction, const ShownUpdate& shown) {
    const kernels::FlatRange& update = shown.update;
    std::vector<float> gradients;
    if (!shown.done) {
        gradients.resize(static_cast<size_t>(shown.range.numel));
        kernels::ordered_sum(update.gradients, shown.mean_scale, gradients.data(),
                             shown.range.numel);
    }
    for_each_slice(instruction.bucket, shown.range, [&](int i, const Range& elements, int64_t at) {
        const auto part = [&](auto whole) {
            return whole.empty() ? whole
                                 : whole.subspan(static_cast<size_t>(at),
                                                 static_cast<size_t>(elements.numel));
        };
        runtime::SeenUpdate seen;
        seen.parameter = place_.layout->slices[i].parameter;
        seen.bucket = instruction.bucket;
        seen.chunk = instruction.chunk;
        seen.elements = elements;
        seen.update = shown.run.step;
        seen.optimizer = &rule(shown.run).optimizer;
        seen.lr = rate(shown.run);
        seen.betas = settings_.betas;
        seen.loss_scale = settings_.loss_scale;
        seen.gradients = part(std::span<const float>(gradients));
        seen.factor = clip_factor_;
        seen.parameters = part(update.parameters);
        seen.first = part(update.first);
        seen.second = part(update.second);
        if (seen.optimizer->kind == config::OptimizerKind::kAdafactor)
            std::ranges::copy(tensor_states_->of(i), seen.factors.begin());
        seen.half = part(update.half_parameters);
        shown.done ? witness_->after_update(seen) : witness_->before_update(seen);
    });
}

// The arrays of an update of RANGE, but for its gradients.
kernels::FlatRange ZeroState::arrays_of(int b, const ChunkPart& part, const ChunkView& view,
                                        const Range& range) const {
    const bool writes = place_.map->pieces(b)[part.piece].writes;
    const int64_t at = part.offset_numel + range.begin - part.range.begin;
    kernels::FlatRange update;
    update.numel = range.numel;
    std::byte* values = nullptr;
    if (view.parameters != nullptr) {
        values = view.parameters + at * dtype_bytes(options_.dtype);
    } else if (writes || !half()) {
        values = parameters_->kept(b, range.begin);
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
        static_cast<uint32_t>(settings_.step) * 0x9E3779B1U + view.packed.seed * 0xC2B2AE35U;
    if (without_masters()) {
        if (writes) update.packed.parameters = reinterpret_cast<uint16_t*>(values);
    } else if (half()) {
        update.parameters = from(view.master);
        if (values != nullptr)
            update.half_parameters = {reinterpret_cast<uint16_t*>(values), numel};
        update.half_dtype = options_.dtype;
    } else if (writes) {
        update.parameters = {reinterpret_cast<float*>(values), numel};
    } else {
        update.decay_parameters = {reinterpret_cast<const float*>(values), numel};
    }
    return update;
}

void ZeroState::update_part(const plan::Instruction& instruction, const ChunkPart& part,
                            const Run& run, const ChunkView& view) {
    const int b = instruction.bucket;
    const Range both = intersect(run.range, part.range);
    if (both.numel == 0) return;
    if (rule(run).optimizer.needs_whole_tensors())
        return update_tensor(instruction, part, run, view);
    if (plan::is_compressed(place_.plan->exchange)) return take_average(b, part, both, view);
    const bool shows = witness_ != nullptr && place_.map->pieces(b)[part.piece].writes;
    for_gradients(b, part, both, view,
                  [&](const Range& range, std::span<const float* const> gradients, float scale) {
                      kernels::FlatRange update = arrays_of(b, part, view, range);
                      update.gradients = gradients;
                      update.gradient_scale = scale * clip_factor_;
                      if (shows) show(instruction, {update, range, scale, run, /*done=*/false});
                      optimizers_[static_cast<size_t>(run.rule)].update(
                          update, rate(run), run.step, settings_.betas, place_.plan->exchange);
                      if (shows) show(instruction, {update, range, scale, run, /*done=*/true});
                  });
}

void ZeroState::update_tensor(const plan::Instruction& instruction, const ChunkPart& part,
                              const Run& run, const ChunkView& view) {
    const int b = instruction.bucket;
    const plan::ParameterSlice& slice = place_.layout->slices[run.slice];
    const Range tensor{run.range.begin, slice.numel};
    if (tensor.numel == 0) return;
    DSL_CHECK(intersect(tensor, part.range) == tensor, "{} is cut among ranks",
              model_.parameters()[slice.parameter].name);
    kernels::FlatRange update = arrays_of(b, part, view, tensor);
    const float* gradients = nullptr;
    if (plan::is_compressed(place_.plan->exchange)) {
        gradients = exchange_->averaged(b).data() + tensor.begin;
    } else {
        float* const mean = tensor_optimizer_->gradients();
        for_gradients(b, part, tensor, view,
                      [&](const Range& range, std::span<const float* const> terms, float scale) {
                          queue().ordered_sum(terms, scale, mean + range.begin - tensor.begin,
                                              range.numel);
                      });
        gradients = mean;
        update.gradient_scale = clip_factor_;
    }
    update.gradients = {&gradients, 1};
    const bool shows = witness_ != nullptr && place_.map->pieces(b)[part.piece].writes;
    if (shows) show(instruction, {update, tensor, 1.0F, run, /*done=*/false});
    TensorStep step{&rule(run).optimizer, rate(run), run.step, settings_.betas,
                    place_.plan->exchange};
    if (rule(run).optimizer.kind == options_.optimizer.kind)
        step.states = tensor_states_->of(run.slice);
    tensor_optimizer_->update(update, model_.parameters()[slice.parameter].tensor, step);
    if (shows) show(instruction, {update, tensor, 1.0F, run, /*done=*/true});
}

}  // namespace dslaunch::zero

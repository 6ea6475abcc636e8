#include "zero/zero_state.h"

#include <ATen/core/Tensor.h>
#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "storage/checkpoint/manifest.h"

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
    : StateValues(model, place, slices, arena, group, collectives, options, offload),
      offload_(offload),
      norm_(parts_, arena),
      elementwise_(parts_),
      averaged_(place.plan_options->compression.errors
                    ? std::make_unique<AveragedPath>(parts_, arena)
                    : nullptr),
      tensors_(parts_, averaged_ ? &averaged_->averages() : nullptr),
      lagging_(place.plan_options->lag.on ? std::make_unique<LaggingPath>(parts_) : nullptr) {
    paths_ = {&elementwise_, &tensors_};
    if (averaged_) paths_.push_back(averaged_.get());
    if (lagging_) paths_.push_back(lagging_.get());
    choose_paths();
    if (!lagging_ && options.saved != nullptr && parts_.collectives().topology().rank() == 0 &&
        std::ranges::any_of(options.saved->checkpoint().states, storage::is_lagging_state))
        log_warn("resume",
                 "the delayed gradients in the checkpoint are ignored: its run had "
                 "zero_optimization.zenflow, but this run does not");
    parts_.device().compute().finish();
}

void ZeroState::choose_paths() {
    UpdatePath* first = &elementwise_;
    if (plan::is_compressed(parts_.place().plan->exchange)) first = averaged_.get();
    active_ = {first, &tensors_};
    if (lagging_) active_ = {lagging_.get()};
}

void ZeroState::change_plan(const plan::StepPlan& plan) {
    parts_.states().change_plan(plan);
    parts_.follow(plan);
    choose_paths();
}

void ZeroState::begin_step(const runtime::StepSettings& settings) {
    for (UpdatePath* path : paths_) path->begin_step(settings);
    parts_.begin_step(settings);
    norm_.begin_step();
    parts_.gradients().begin_step();
    parts_.states().begin_step(settings.logged);
}

void ZeroState::run(const plan::Instruction& instruction) {
    const int b = instruction.bucket;
    const int64_t step = parts_.now().number;
    switch (instruction.op) {
        case plan::Op::kAwait:
            return parts_.parameters().await_whole(b, step - 1);
        case plan::Op::kGather:
            // gather_in_place() runs after this step's update, and brings the updated parameters.
            // gather() runs before the update, and brings the parameters that this step reads.
            if (instruction.buffer < 0) return parts_.parameters().gather_in_place(b, step);
            return parts_.parameters().gather(
                b, instruction.buffer, step - 1,
                parts_.place().plan_options->gather_packing(parts_.bucket(b)));
        case plan::Op::kRelease:
            return parts_.parameters().release(b, instruction.buffer);
        case plan::Op::kClaim:
            return parts_.gradients().claim(b);
        case plan::Op::kPost:
            // The gradients of a tied bucket are not checked here, because they already include the
            // gradients of other stages. tied_gradients() has checked this rank's own gradients.
            if (parts_.bucket(b).kind != plan::BucketKind::kTied) norm_.look_for_overflow(b);
            return parts_.gradients().post(b);
        case plan::Op::kReduce:
            return parts_.gradients().reduce(instruction, parts_.now().settings.step);
        case plan::Op::kAccumulate:
            return accumulate(instruction);
        case plan::Op::kNorm: {
            const bool finite = norm_.compute();
            for (UpdatePath* path : active_) path->know_norm(finite);
            return;
        }
        case plan::Op::kExchange:
        case plan::Op::kSelect:
        case plan::Op::kUpdateRest:
            return active_.front()->run(instruction);
        case plan::Op::kUpdate:
            return update(instruction);
        case plan::Op::kRead:
            if (instruction.chunk < 0) return parts_.parameters().bring(b, instruction.buffer);
            return parts_.states().read(instruction);
        case plan::Op::kWrite:
            return parts_.states().write(instruction);
        default:
            DSL_CHECK(false, "the ZeRO state cannot run the instruction {}",
                      plan::op_name(instruction.op));
    }
}

std::span<float> ZeroState::tied_gradients(int b) {
    const std::span<float> values = parts_.gradients().complete_tied(b);
    norm_.look_for_overflow(b);
    return values;
}

bool ZeroState::is_sharded() const {
    return parts_.place().map->gathers();
}

void ZeroState::accumulate(const plan::Instruction& instruction) {
    const int b = instruction.bucket;
    const int c = instruction.chunk;
    GradientSums& gradients = parts_.gradients();
    const auto chunks = parts_.states().chunks_of(b);
    if (c == chunks.front()) gradients.begin_accumulate(b);
    float* const sums = parts_.states().sums_of(instruction, gradients.first_micro_step());
    for (const ChunkPart& part : parts_.states().parts(c))
        gradients.accumulate(b, part.range, sums + part.offset_numel);
    if (instruction.micro_step + 1 == parts_.place().plan_options->accumulation_steps) {
        norm_.take_sums(c, sums);
        for (UpdatePath* path : active_) path->take_sums(c, sums);
    }
    if (c == chunks.back()) gradients.end_accumulate(b);
}

void ZeroState::update(const plan::Instruction& instruction) {
    const int b = instruction.bucket;
    const auto chunks = parts_.states().chunks_of(b);
    const int c = instruction.chunk;
    const bool skipped = parts_.now().overflow.has_value();
    if (c == chunks.front()) {
        parts_.gradients().open(b);
        for (UpdatePath* path : active_) path->begin_bucket(b);
    }
    if (!skipped) {
        update_chunk(instruction);
        if (instruction.buffer >= 0) parts_.states().set_changed(instruction.buffer);
    }
    if (c != chunks.back()) return;
    for (UpdatePath* path : active_)
        if (!skipped) path->end_bucket();
    parts_.parameters().post_updated(b, parts_.now().number);
    parts_.gradients().close(b);
}

void ZeroState::update_chunk(const plan::Instruction& instruction) {
    const int c = instruction.chunk;
    const int b = instruction.bucket;
    if (parts_.guard() != nullptr) parts_.guard()->before_update(c);
    const ChunkView view = parts_.states().view(instruction);
    // If chunks are on disk, updates do not read the 16-bit parameters, but compute them from the
    // master copy. A slice without a gradient has no update, so its parameters are computed here.
    if (parts_.half() && view.parameters != nullptr && !parts_.runs().cover(parts_.bucket(b)))
        for (const ChunkPart& part : parts_.states().parts(c))
            parts_.queue().to_half(view.master + part.offset_numel,
                                   reinterpret_cast<uint16_t*>(view.parameters) + part.offset_numel,
                                   part.range.numel, parts_.options().dtype);
    // First updates the elements that other ranks write: L2 decay reads their parameters, and needs
    // the values from before the step.
    for (UpdatePath* path : active_) path->update(instruction, view, /*writes=*/false);
    if (parts_.reads_replicas()) parts_.meet(b, 2 * parts_.now().number + 1);
    for (UpdatePath* path : active_) path->update(instruction, view, /*writes=*/true);
    for (UpdatePath* path : active_) path->end_chunk(c, view);
}

runtime::MemoryAccount ZeroState::memory() const {
    runtime::MemoryAccount account;
    const ZeroPlace& place = parts_.place();
    for (const plan::PlanBuffer& buffer : place.plan->buffers) {
        const bool on_device = buffer.tier == plan::Tier::kDevice;
        if (!buffer.persistent || (buffer.tier != plan::Tier::kShared && !on_device)) continue;
        if (buffer.kind == plan::BufferKind::kParameters) account.parameters += buffer.bytes;
        if (buffer.kind == plan::BufferKind::kGradients) account.gradients += buffer.bytes;
        if (buffer.kind == plan::BufferKind::kStaging) account.staging += buffer.bytes;
    }
    account.gradients += parts_.gradients().error_bytes();
    // On a device, the gradient buffers of the plan include the sums, and are already counted
    // above.
    parts_.states().add_memory(account, /*sums=*/!place.plan_options->on_device);
    for (const UpdatePath* path : paths_) path->add_memory(account);
    return account;
}

std::optional<runtime::DiskTraffic> ZeroState::disk_traffic() const {
    if (offload_ == nullptr) return std::nullopt;
    return offload_->traffic();
}

}  // namespace dslaunch::zero

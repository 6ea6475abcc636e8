// The part of the ZeRO state that hands values over: to checkpoints and to final weights.
#include "zero/zero_state.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <algorithm>

#include "graph/tensor/tensor_rank.h"
#include "kernels/state_packing.h"
#include "plan/layout/tensor_shares.h"
#include "storage/checkpoint/manifest.h"
#include "zero/parameters/host_values.h"

namespace dslaunch::zero {

void ZeroState::hold(std::span<const int> parameters, bool keep) {
    parameters_->hold(parameters, step_, keep);
}

bool ZeroState::is_sharded() const {
    return place_.map->shard_numel() > 0 || place_.map->parameters_offloaded();
}

std::vector<std::string> ZeroState::summary() const {
    return states_->describe_packing();
}

std::vector<int> ZeroState::parameters_elsewhere() const {
    std::vector<int> parameters;
    const bool all = half() || !device().is_host();
    for (int i = 0; i < static_cast<int>(place_.layout->slices.size()); ++i)
        if (all || place_.map->is_gathered(place_.layout->bucket_of(i)))
            parameters.push_back(place_.layout->slices[i].parameter);
    return parameters;
}

// VALUES are a bucket's. They are empty if its parameters have no elements.
void ZeroState::hand_over(int b, std::span<const float> values, const UseWeights& use) const {
    for (int i = bucket(b).first_slice; use && i < bucket(b).end_slice; ++i) {
        const plan::ParameterSlice& slice = place_.layout->slices[i];
        const auto offset = static_cast<size_t>(slice.offset_numel - bucket(b).offset_numel);
        use(slice.parameter, slice.numel == 0
                                 ? std::span<const float>()
                                 : values.subspan(offset, static_cast<size_t>(slice.numel)));
    }
}

// Brings the buckets whose parameters no tensor of the host holds.
void ZeroState::bring_fp32(const UseWeights& use) {
    const int buckets = static_cast<int>(place_.layout->buckets.size());
    const auto give = [&](int b, std::span<const std::byte> bytes) {
        const HostValues host(
            device(), {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)});
        hand_over(b, host.values(), use);
    };
    for (int b = 0; b < buckets; ++b) {
        if (place_.map->is_gathered(b)) {
            parameters_->visit(b, step_, [&](std::span<const std::byte> bytes) { give(b, bytes); });
        } else if (!device().is_host() && use) {
            give(b, {parameters_->kept(b, 0), static_cast<size_t>(bucket(b).numel) * 4});
        }
    }
}

// Writes the part's weights, fp32, to INTO. REQUIRES: without_masters().
void ZeroState::widen(int b, const ChunkPart& part, float* into) const {
    const auto numel = static_cast<size_t>(part.range.numel);
    kernels::unpack_state(StatePacking::kBf16, {parameters_->kept(b, part.range.begin), numel * 2},
                          {into, numel});
}

// Writes the fp32 weights of this rank's pieces, each to where it belongs behind BASE.
void ZeroState::copy_weights(int b, float* base) {
    if (!without_masters()) return states_->copy_master(b, base);
    for (const int c : states_->chunks_of(b))
        for (const ChunkPart& part : states_->parts(c)) widen(b, part, base + part.range.begin);
}

void ZeroState::bring_weights(const UseWeights& use) {
    settle();
    if (!half()) return bring_fp32(use);
    gradients_->collect([&](int b, std::span<float> whole) { copy_weights(b, whole.data()); },
                        [&](int b, std::span<const float> values) { hand_over(b, values, use); });
    const int slices = static_cast<int>(place_.layout->slices.size());
    for (int i = place_.layout->trained_slices; use && i < slices; ++i) {
        const at::Tensor values = parameters_->frozen_values(i, {}).to(at::kFloat);
        use(place_.layout->slices[i].parameter,
            {values.const_data_ptr<float>(), static_cast<size_t>(values.numel())});
    }
}

std::vector<int> ZeroState::chunks_by_update() const {
    std::vector<int> chunks;
    for (const plan::Instruction& instruction : place_.plan->instructions)
        if (instruction.op == plan::Op::kUpdate) chunks.push_back(instruction.chunk);
    return chunks;
}

// VIEW is the chunk's. Null means that the chunk is not in memory.
void ZeroState::add_pieces(int c, const ChunkView* view, std::vector<runtime::SavedPiece>& pieces) {
    const int b = states_->chunk(c).bucket;
    const size_t further = lagging_ ? lagging_->state_names().size() : 0;
    for (const ChunkPart& part : states_->parts(c)) {
        if (!place_.map->pieces(b)[part.piece].writes) continue;
        // Whoever holds a copy shares the saving.
        const Range range = intersect(
            part.range, part_range(bucket(b).numel, {place_.map->copy(), place_.map->copies()}));
        for_each_slice(b, range, [&](int i, const Range& elements, int64_t at) {
            const int64_t element = range.begin + at;
            const int64_t in_chunk = part.offset_numel + element - part.range.begin;
            const int parameter = place_.layout->slices[i].parameter;
            const auto add = [&](int state, const void* values) {
                pieces.push_back(
                    {parameter, state, elements, static_cast<const std::byte*>(values), c});
            };
            const std::byte* weights = nullptr;
            if (view != nullptr && half()) {
                weights = reinterpret_cast<const std::byte*>(view->master + in_chunk);
            } else if (view != nullptr) {
                weights = view->parameters != nullptr
                              ? view->parameters + in_chunk * dtype_bytes(DType::kF32)
                              : parameters_->kept(b, element);
            }
            add(-1, weights);
            const auto states =
                static_cast<size_t>(ShardOptimizer::states_per_parameter(options_.optimizer));
            for (size_t k = 0; k < states; ++k)
                add(static_cast<int>(k), view == nullptr ? nullptr : view->moments[k] + in_chunk);
            for (size_t k = 0; k < further; ++k)
                add(static_cast<int>(states + k),
                    view == nullptr ? nullptr : lagging_->saved_values(c, k) + in_chunk);
        });
    }
}

std::vector<std::string> ZeroState::further_states() const {
    if (lagging_) return lagging_->state_names();
    std::vector<std::string> names;
    for (const std::string& name : tensor_state_names(options_.optimizer))
        if (storage::is_further_state(name)) names.push_back(name);
    if (!exchange_) return names;
    for (std::string& name : exchange_->state_names()) names.push_back(std::move(name));
    return names;
}

std::vector<int64_t> ZeroState::state_numel(const at::Tensor& parameter) const {
    const std::vector<std::string> names = tensor_state_names(options_.optimizer);
    if (names.empty()) return {};
    const auto moments =
        static_cast<size_t>(ShardOptimizer::states_per_parameter(options_.optimizer));
    std::vector<int64_t> numel(moments, storage::kLikeTensor);
    const std::vector<int64_t> own = tensor_state_numel(
        options_.optimizer, {parameter.sizes().data(), parameter.sizes().size()});
    for (size_t k = 0; k < own.size(); ++k)
        numel.push_back(names[k] == storage::kFreshVariance ? storage::kLikeTensor : own[k]);
    return numel;
}

std::vector<runtime::SavedPiece> ZeroState::saved_pieces() {
    std::vector<runtime::SavedPiece> pieces;
    const int states = static_cast<int>(ShardOptimizer::states_per_parameter(options_.optimizer));
    for (const int c : chunks_by_update()) {
        const std::optional<ChunkView> view =
            without_masters() ? std::nullopt : states_->view_at_rest(c);
        add_pieces(c, view ? &*view : nullptr, pieces);
        const int b = states_->chunk(c).bucket;
        if (c == states_->chunks_of(b).front()) tensor_states_->add_pieces(b, states, c, pieces);
    }
    const auto tensor_states = static_cast<int>(tensor_state_names(options_.optimizer).size());
    if (exchange_) exchange_->add_pieces(states + tensor_states, error_unit(0), pieces);
    std::erase_if(pieces, [&](const runtime::SavedPiece& piece) {
        return std::ranges::find(options_.pipeline.counted_elsewhere, piece.parameter) !=
               options_.pipeline.counted_elsewhere.end();
    });
    return in_whole(std::move(pieces));
}

// Turns PIECES of this rank's shares into pieces of whole parameters. A parameter that all tensor
// ranks hold whole is saved by the first one.
std::vector<runtime::SavedPiece> ZeroState::in_whole(
    std::vector<runtime::SavedPiece> pieces) const {
    if (options_.tensor == nullptr) return pieces;
    const graph::TensorRank& tensor = *options_.tensor;
    std::vector<runtime::SavedPiece> all;
    for (const runtime::SavedPiece& piece : pieces) {
        if (!tensor.is_split(piece.parameter)) {
            if (tensor.group->rank() == 0) all.push_back(piece);
            continue;
        }
        const plan::TensorShare share(tensor.plan->parameters[piece.parameter], tensor.part());
        share.for_each(piece.elements, [&](int64_t begin, const Range& elements) {
            runtime::SavedPiece& part = all.emplace_back(piece);
            part.elements = elements;
            if (piece.values != nullptr)
                part.values += (begin - piece.elements.begin) * int64_t{sizeof(float)};
        });
    }
    return all;
}

void ZeroState::copy_values(std::span<std::byte> into, const std::byte* values) {
    const std::lock_guard lock(copies_mutex_);
    device().copies().copy_out(into.data(), values, std::ssize(into));
}

void ZeroState::bring_saved(int chunk, const UsePieces& use) {
    states_->visit(chunk, [&](const ChunkView& view) {
        std::vector<runtime::SavedPiece> pieces;
        ChunkView whole = view;
        std::vector<float> weights;
        if (without_masters()) {
            weights.resize(static_cast<size_t>(states_->chunk(chunk).range.numel));
            for (const ChunkPart& part : states_->parts(chunk))
                widen(states_->chunk(chunk).bucket, part, weights.data() + part.offset_numel);
            whole.master = weights.data();
        }
        add_pieces(chunk, &whole, pieces);
        use(in_whole(std::move(pieces)));
        // Every chunk's would add up.
        if (lagging_) lagging_->forget_saved(chunk);
    });
}

std::optional<int64_t> ZeroState::updates_of(int parameter) const {
    const int slice = place_.layout->slice_of(parameter);
    if (slice < 0 || slice >= place_.layout->trained_slices) return std::nullopt;
    return slice_steps_[slice];
}

at::Tensor ZeroState::untrained_values(int parameter) const {
    if (options_.tensor != nullptr && options_.tensor->is_split(parameter))
        return options_.tensor->whole->parameters()[parameter].tensor;
    const int slice = place_.layout->slice_of(parameter);
    const at::Tensor& tensor = model_.parameters()[parameter].tensor;
    return slice < 0 ? tensor : parameters_->frozen_values(slice, tensor);
}

runtime::MemoryAccount ZeroState::memory() const {
    runtime::MemoryAccount account;
    for (const plan::PlanBuffer& buffer : place_.plan->buffers) {
        const bool on_device = buffer.tier == plan::Tier::kDevice;
        if (!buffer.persistent || (buffer.tier != plan::Tier::kShared && !on_device)) continue;
        if (buffer.kind == plan::BufferKind::kParameters) account.parameters += buffer.bytes;
        if (buffer.kind == plan::BufferKind::kGradients) account.gradients += buffer.bytes;
        if (buffer.kind == plan::BufferKind::kStaging) account.staging += buffer.bytes;
    }
    account.gradients += gradients_->error_bytes();
    // The plan of a device counts the sums among its gradients.
    if (!place_.plan_options->on_device) account.gradients += states_->sum_bytes();
    if (lagging_) account.gradients += lagging_->waiting_bytes();
    account.parameters += states_->parameter_bytes();
    account.master = states_->master_bytes();
    account.moments = states_->moment_bytes() + tensor_states_->bytes() + compression_bytes();
    if (lagging_) account.moments += lagging_->kept_bytes();
    account.swap_buffers = states_->buffer_bytes();
    return account;
}

std::optional<runtime::DiskTraffic> ZeroState::disk_traffic() const {
    if (offload_ == nullptr) return std::nullopt;
    return offload_->traffic();
}

}  // namespace dslaunch::zero

#include "zero/saving/state_values.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <map>

#include "graph/archive/scalar_types.h"
#include "graph/memory/memory_order.h"
#include "graph/tensor/tensor_rank.h"
#include "kernels/packing.h"
#include "plan/layout/tensor_share.h"
#include "storage/checkpoint/manifest.h"
#include "zero/parameters/flat_view.h"
#include "zero/parameters/host_values.h"

namespace dslaunch::zero {

using runtime::SavedPiece;

std::vector<int> StateValues::parameters_elsewhere() const {
    std::vector<int> parameters;
    const plan::FlatLayout& layout = *parts_.place().layout;
    const bool all = parts_.half() || !parts_.device().is_host();
    for (int i = 0; i < static_cast<int>(layout.slices.size()); ++i)
        if (all || parts_.place().map->is_gathered(layout.bucket_of(i)))
            parameters.push_back(layout.slices[i].parameter);
    return parameters;
}

// Passes a bucket's VALUES to USE. VALUES are empty if the bucket's parameters have no elements.
void StateValues::hand_over(int b, std::span<const float> values, const UseWeights& use) const {
    const plan::Bucket& bucket = parts_.bucket(b);
    for (int i = bucket.first_slice; use && i < bucket.end_slice; ++i) {
        const plan::ParameterSlice& slice = parts_.place().layout->slices[i];
        const auto offset = static_cast<size_t>(slice.offset_numel - bucket.offset_numel);
        use(slice.parameter, slice.numel == 0
                                 ? std::span<const float>()
                                 : values.subspan(offset, static_cast<size_t>(slice.numel)));
    }
}

// Calls USE for each bucket whose values are not in the host's memory as tensors: for the gathered
// buckets and, if the arena is on a device, for all buckets.
void StateValues::bring_fp32(const UseWeights& use) {
    device::Device& device = parts_.device();
    const auto give = [&](int b, std::span<const std::byte> bytes) {
        const HostValues host(
            device, {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)});
        hand_over(b, host.values(), use);
    };
    for (int b = 0; b < std::ssize(parts_.place().layout->buckets); ++b) {
        if (parts_.place().map->is_gathered(b)) {
            parts_.parameters().visit(b, parts_.now().number,
                                      [&](std::span<const std::byte> bytes) { give(b, bytes); });
        } else if (!device.is_host() && use) {
            give(b,
                 {parts_.parameters().kept(b, 0), static_cast<size_t>(parts_.bucket(b).numel) * 4});
        }
    }
}

// Gathers the fp32 values of trained 16-bit parameters. If BUCKETS is given, gathers only these.
void StateValues::bring_masters(const UseWeights& use, const std::set<int>* buckets) {
    const auto put = [&](int b, std::span<float> whole) {
        if (!parts_.without_masters()) return parts_.states().copy_master(b, whole.data());
        for (const int c : parts_.states().chunks_of(b))
            for (const ChunkPart& part : parts_.states().parts(c))
                widen(b, part, whole.data() + part.range.begin);
    };
    const auto take = [&](int b, std::span<const float> values) { hand_over(b, values, use); };
    parts_.gradients().collect(put, take, buckets);
}

// Writes the part's weights to INTO, as fp32. REQUIRES: there are no master copies.
void StateValues::widen(int b, const ChunkPart& part, float* into) const {
    const auto numel = static_cast<size_t>(part.range.numel);
    kernels::unpack_state(StatePacking::kBf16,
                          {parts_.parameters().kept(b, part.range.begin), numel * 2},
                          {into, numel});
}

void StateValues::bring_weights(const UseWeights& use) {
    parts_.settle();
    if (!parts_.half()) return bring_fp32(use);
    bring_masters(use);
    const plan::FlatLayout& layout = *parts_.place().layout;
    for (int i = layout.trained_slices; use && i < std::ssize(layout.slices); ++i) {
        const at::Tensor values = parts_.parameters().frozen_values(i, {}).to(at::kFloat);
        use(layout.slices[i].parameter,
            {values.const_data_ptr<float>(), static_cast<size_t>(values.numel())});
    }
}

std::vector<StateValues::Numbered> StateValues::numbered_paths() const {
    std::vector<Numbered> numbered;
    int state = static_cast<int>(ShardOptimizer::states_per_parameter(parts_.options().optimizer));
    for (UpdatePath* path : paths_) {
        numbered.push_back({path, state, path->state_names().size()});
        state += static_cast<int>(numbered.back().states);
    }
    return numbered;
}

// Adds the pieces of chunk C to PIECES. VIEW is the chunk's view, or null if the chunk is not in
// memory.
void StateValues::add_pieces(int c, const ChunkView* view, std::vector<SavedPiece>& pieces) {
    const int b = parts_.states().chunk(c).bucket;
    const ShardMap& map = *parts_.place().map;
    const std::vector<Numbered> paths = numbered_paths();
    const ChunkView chunk = view == nullptr ? ChunkView{} : *view;
    const bool kept = view != nullptr && !parts_.half() && chunk.parameters == nullptr;
    for (const ChunkPart& part : parts_.states().parts(c)) {
        if (!parts_.writes(b, part)) continue;
        // If several hosts or groups hold a copy, each of them saves an equal part of it.
        const Range range =
            intersect(part.range, part_range(parts_.bucket(b).numel, {map.copy(), map.copies()}));
        const auto add_slice = [&](int i, const Range& elements, int64_t begin) {
            const int64_t bytes_in = (part.offset_numel + begin - part.range.begin) * 4;
            const int parameter = parts_.place().layout->slices[i].parameter;
            const auto add = [&](int state, const void* of_chunk) {
                const std::byte* const values =
                    view == nullptr ? nullptr : static_cast<const std::byte*>(of_chunk) + bytes_in;
                pieces.push_back({parameter, state, elements, values, c});
            };
            add(-1, parts_.half() ? static_cast<const void*>(chunk.master) : chunk.parameters);
            if (kept) pieces.back().values = parts_.parameters().kept(b, begin);
            for (int k = 0; k < paths.front().first; ++k)
                add(k, chunk.moments[static_cast<size_t>(k)]);
            for (const auto& [path, first, states] : paths)
                for (size_t k = 0; path->saves_chunks() && k < states; ++k)
                    add(first + static_cast<int>(k),
                        view == nullptr ? nullptr : path->saved_values(c, k));
        };
        for_each_slice(*parts_.place().layout, b, range, add_slice);
    }
}

std::vector<std::string> StateValues::further_states() const {
    std::vector<std::string> names;
    for (const UpdatePath* path : paths_)
        for (std::string& name : path->state_names())
            if (storage::is_further_state(name)) names.push_back(std::move(name));
    return names;
}

std::vector<int64_t> StateValues::state_numel(const at::Tensor& parameter) const {
    const config::OptimizerConfig& optimizer = parts_.options().optimizer;
    const std::vector<std::string> names = tensor_state_names(optimizer);
    if (names.empty()) return {};
    std::vector<int64_t> numel(static_cast<size_t>(ShardOptimizer::states_per_parameter(optimizer)),
                               storage::kLikeTensor);
    const std::vector<int64_t> own =
        tensor_state_numel(optimizer, {parameter.sizes().data(), parameter.sizes().size()});
    for (size_t k = 0; k < own.size(); ++k)
        numel.push_back(names[k] == storage::kFreshVariance ? storage::kLikeTensor : own[k]);
    return numel;
}

std::vector<SavedPiece> StateValues::saved_pieces() {
    std::vector<SavedPiece> pieces;
    const std::vector<Numbered> paths = numbered_paths();
    const auto add_further = [&](int chunk) {
        for (const auto& [path, first, states] : paths) path->add_pieces(chunk, first, pieces);
    };
    for (const plan::Instruction& update : parts_.place().plan->instructions) {
        if (update.op != plan::Op::kUpdate) continue;
        const int c = update.chunk;
        const std::optional<ChunkView> view =
            parts_.without_masters() ? std::nullopt : parts_.states().view_at_rest(c);
        add_pieces(c, view ? &*view : nullptr, pieces);
        if (c == parts_.states().chunks_of(update.bucket).front()) add_further(c);
    }
    add_further(-1);
    const std::vector<int>& elsewhere = parts_.options().pipeline.counted_elsewhere;
    std::erase_if(pieces, [&](const SavedPiece& piece) {
        return std::ranges::find(elsewhere, piece.parameter) != elsewhere.end();
    });
    return in_whole(std::move(pieces));
}

// Converts PIECES, which are ranges of this rank's tensor shares, to ranges of whole parameters. If
// all tensor ranks have the whole parameter, only the first rank saves it.
std::vector<SavedPiece> StateValues::in_whole(std::vector<SavedPiece> pieces) const {
    if (parts_.options().tensor == nullptr) return pieces;
    const graph::TensorRank& tensor = *parts_.options().tensor;
    std::vector<SavedPiece> all;
    for (const SavedPiece& piece : pieces) {
        if (!tensor.is_split(piece.parameter)) {
            if (tensor.group->rank() == 0) all.push_back(piece);
            continue;
        }
        const plan::TensorShare share(tensor.plan->parameters[piece.parameter], tensor.part());
        share.for_each(piece.elements, [&](int64_t begin, const Range& elements) {
            SavedPiece& part = all.emplace_back(piece);
            part.elements = elements;
            if (piece.values != nullptr)
                part.values += (begin - piece.elements.begin) * int64_t{sizeof(float)};
        });
    }
    return all;
}

void StateValues::copy_values(std::span<std::byte> into, const std::byte* values) {
    const std::lock_guard lock(copies_mutex_);
    parts_.device().copies().copy_out(into.data(), values, std::ssize(into));
}

void StateValues::bring_saved(int c, const UsePieces& use) {
    parts_.states().visit(c, [&](const ChunkView& view) {
        std::vector<SavedPiece> pieces;
        ChunkView whole = view;
        std::vector<float> weights;
        if (parts_.without_masters()) {
            weights.resize(static_cast<size_t>(parts_.states().chunk(c).range.numel));
            for (const ChunkPart& part : parts_.states().parts(c))
                widen(parts_.states().chunk(c).bucket, part, weights.data() + part.offset_numel);
            whole.master = weights.data();
        }
        add_pieces(c, &whole, pieces);
        use(in_whole(std::move(pieces)));
        // Frees these values now, so that only one chunk's values are in memory at a time.
        for (UpdatePath* path : paths_) path->forget_saved(c);
    });
}

std::optional<int64_t> StateValues::updates_of(int parameter) const {
    const int slice = parts_.place().layout->slice_of(parameter);
    if (slice < 0 || slice >= parts_.place().layout->trained_slices) return std::nullopt;
    return parts_.runs().updates_of(slice);
}

at::Tensor StateValues::untrained_values(int parameter) const {
    const graph::TensorRank* const tensor_rank = parts_.options().tensor;
    if (tensor_rank != nullptr && tensor_rank->is_split(parameter))
        return tensor_rank->whole->parameters()[parameter].tensor;
    const int slice = parts_.place().layout->slice_of(parameter);
    const at::Tensor& tensor = parts_.model().parameters()[parameter].tensor;
    return slice < 0 ? tensor : parts_.parameters().frozen_values(slice, tensor);
}

// Returns copies of PARAMETERS as they were after the last step, in fp32 if there are master
// copies.
std::vector<at::Tensor> StateValues::whole_values(std::span<const int> parameters) {
    const std::vector<graph::ModelParameter>& all = parts_.model().parameters();
    const plan::FlatLayout& layout = *parts_.place().layout;
    std::map<int, at::Tensor> masters;
    if (parts_.half() && !parts_.without_masters()) {
        std::set<int> buckets;
        for (const int parameter : parameters)
            if (updates_of(parameter)) buckets.insert(layout.bucket_of(layout.slice_of(parameter)));
        const auto copy = [&](int parameter, std::span<const float> values) {
            const at::Tensor view =
                view_like(all[static_cast<size_t>(parameter)].tensor,
                          const_cast<float*>(values.data()), at::kFloat, at::kCPU);
            masters[parameter] = view.clone().to(parts_.place().device.name);
        };
        bring_masters(copy, &buckets);
    }
    parts_.parameters().hold(parameters, parts_.now().number, /*keep=*/true);
    std::vector<at::Tensor> values;
    for (const int parameter : parameters) {
        const auto master = masters.find(parameter);
        values.push_back(master != masters.end()
                             ? master->second
                             : all[static_cast<size_t>(parameter)].tensor.detach().clone());
    }
    parts_.parameters().let_go();
    return values;
}

// Writes the part of VALUES that this rank keeps. VALUES are the values of RANGE of a bucket.
void StateValues::store_elements(int b, const Range& range, const float* values) {
    const auto write = [&](const Range& part, void* into, at::ScalarType as) {
        const int64_t bytes = part.numel * static_cast<int64_t>(c10::elementSize(as));
        write_from_host(parts_.device(), into, bytes, [&](std::byte* host) {
            float* const from = const_cast<float*>(values) + (part.begin - range.begin);
            at::from_blob(host, {part.numel}, as)
                .copy_(at::from_blob(from, {part.numel}, at::kFloat));
        });
    };
    std::vector<Range> own;
    if (parts_.place().map->is_gathered(b)) {
        own = parts_.place().map->own_ranges(b);
    } else {
        // Local ranks divide the writing of their host's copy among them.
        const Range part = part_range(
            range.numel, {parts_.group().local_rank(), parts_.group().local_world_size()});
        own = {{range.begin + part.begin, part.numel}};
    }
    for (const Range& kept : own)
        if (const Range both = intersect(kept, range); both.numel > 0)
            write(both, parts_.parameters().kept(b, both.begin),
                  graph::scalar_type_of(parts_.options().dtype));
    const bool trained = b < parts_.place().layout->trained_buckets;
    if (!parts_.half() || parts_.without_masters() || !trained) return;
    for (const int c : parts_.states().chunks_of(b)) {
        const std::optional<ChunkView> view = parts_.states().view_at_rest(c);
        DSL_CHECK(view && view->master != nullptr, "the master copy of bucket {} is not in memory",
                  b);
        for (const ChunkPart& part : parts_.states().parts(c))
            if (const Range both = intersect(part.range, range); both.numel > 0)
                write(both, view->master + part.offset_numel + both.begin - part.range.begin,
                      at::kFloat);
    }
}

void StateValues::store_values(int parameter, const at::Tensor& values) {
    const plan::FlatLayout& layout = *parts_.place().layout;
    const at::Tensor& tensor = parts_.model().parameters()[parameter].tensor;
    const int slice = layout.slice_of(parameter);
    if (slice < 0) {
        tensor.detach().copy_(values);  // no segment reads it, and each rank has its own
        return;
    }
    const at::Tensor laid = at::empty_strided(
        tensor.sizes(), tensor.strides(), at::TensorOptions().dtype(at::kFloat).device(at::kCPU));
    laid.copy_(values);
    const at::Tensor flat = graph::in_memory_order(laid).contiguous();
    const int b = layout.bucket_of(slice);
    const plan::ParameterSlice& of = layout.slices[slice];
    store_elements(b, {of.offset_numel - parts_.bucket(b).offset_numel, of.numel},
                   flat.const_data_ptr<float>());
}

void StateValues::rewrite(std::span<const int> read, std::span<const int> written,
                          const NewValues& use) {
    const at::NoGradGuard no_grad;
    const bool broadcasts =
        parts_.collectives().topology().node_count() > 1 && parts_.device().is_host();
    parts_.settle();
    std::vector<at::Tensor> values = use(whole_values(read));
    DSL_CHECK(values.size() == written.size(), "there are {} values for {} parameters",
              values.size(), written.size());
    for (at::Tensor& value : values) {
        value = value.to(at::kCPU, at::kFloat).contiguous();
        if (broadcasts && value.numel() > 0)
            parts_.collectives().broadcast({static_cast<std::byte*>(value.mutable_data_ptr()),
                                            static_cast<size_t>(value.nbytes())});
    }
    parts_.group().barrier();  // every local rank has its copies
    for (size_t i = 0; i < values.size(); ++i) store_values(written[i], values[i]);
    parts_.device().compute().finish();
    parts_.collectives().barrier();
}

}  // namespace dslaunch::zero

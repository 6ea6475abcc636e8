#include <vector>

#include "zero/saving/state_values.h"

namespace dslaunch::zero {

using runtime::CopiedValues;

// Calls USE with VALUES, after setting `values.values` to the BYTES bytes at MEMORY. MEMORY is on
// the device; if the device is a GPU, copies the bytes to the host first.
void StateValues::give_copied(CopiedValues values, const void* memory, int64_t bytes,
                              const UseCopied& use) {
    std::vector<std::byte> staging;
    if (!parts_.device().is_host() && bytes > 0) {
        staging.resize(static_cast<size_t>(bytes));
        parts_.device().compute().copy_out(staging.data(), memory, bytes);
        memory = staging.data();
    }
    values.values = {static_cast<const std::byte*>(memory), static_cast<size_t>(bytes)};
    use(values);
}

// Visits the weights that every host keeps whole.
void StateValues::visit_weights(const UseCopied& use) {
    const plan::FlatLayout& layout = *parts_.place().layout;
    const int64_t element_bytes = dtype_bytes(parts_.options().dtype);
    for (int i = 0; i < std::ssize(layout.slices); ++i) {
        const plan::ParameterSlice& slice = layout.slices[i];
        const int b = layout.bucket_of(i);
        const bool is_mine = i % parts_.group().local_world_size() == parts_.group().local_rank();
        if (!is_mine || slice.numel == 0 || parts_.place().map->is_gathered(b)) continue;
        give_copied(
            {slice.parameter, CopiedValues::kWeights, CopiedValues::kOfHost, {0, slice.numel}, {}},
            parts_.parameters().kept(b, slice.offset_numel - parts_.bucket(b).offset_numel),
            slice.numel * element_bytes, use);
    }
}

// Visits a chunk's optimizer states, and its weights if they are sharded within a copy.
void StateValues::visit_chunk(int c, const UseCopied& use) {
    const std::optional<ChunkView> view = parts_.states().view_at_rest(c);
    if (!view) return;
    const ShardMap& map = *parts_.place().map;
    const int part_of_copy = map.stage() == 0 ? 0 : map.owners().rank();
    const int b = parts_.states().chunk(c).bucket;
    const bool has_weights = map.is_gathered(b) && !map.parameters_offloaded();
    for (const ChunkPart& part : parts_.states().parts(c)) {
        const auto visit = [&](int slice, const Range& elements, int64_t begin) {
            const int64_t offset = part.offset_numel + begin - part.range.begin;
            const int parameter = parts_.place().layout->slices[slice].parameter;
            const auto give = [&](int state, const float* values) {
                if (values == nullptr) return;
                give_copied({parameter, state, part_of_copy, elements, {}}, values + offset,
                            elements.numel * int64_t{sizeof(float)}, use);
            };
            give(CopiedValues::kMaster, view->master);
            for (size_t k = 0; k < view->moments.size(); ++k)
                give(static_cast<int>(k), view->moments[k]);
            if (has_weights)
                give_copied({parameter, CopiedValues::kWeights, part_of_copy, elements, {}},
                            parts_.parameters().kept(b, begin),
                            elements.numel * dtype_bytes(parts_.options().dtype), use);
        };
        for_each_slice(*parts_.place().layout, b, part.range, visit);
    }
}

void StateValues::visit_copied(const UseCopied& use) {
    const ShardMap& map = *parts_.place().map;
    if (map.topology().node_count() > 1) visit_weights(use);
    const bool has_copies = map.stage() == 0 ? map.topology().world_size() > 1 : map.copies() > 1;
    if (!has_copies) return;
    const auto for_chunks = [&](const auto& visit) {
        for (int b = 0; b < parts_.place().layout->trained_buckets; ++b)
            for (const int c : parts_.states().chunks_of(b)) visit(c);
    };
    // Ranks may divide the same elements into different chunks. So a rank visits its chunks only if
    // all of them are in memory.
    bool are_in_memory = true;
    for_chunks([&](int c) {
        are_in_memory = are_in_memory && parts_.states().view_at_rest(c).has_value();
    });
    if (are_in_memory) for_chunks([&](int c) { visit_chunk(c, use); });
}

}  // namespace dslaunch::zero

#include "plan/layout/chunk_layout.h"

#include <algorithm>

namespace dslaunch::plan {
namespace {

constexpr int64_t kPageBytes = 4096;

}  // namespace

ChunkLayout chunk_layout(const StateChunk& chunk, const ChunkFormat& format) {
    ChunkLayout layout;
    const auto place = [&](int64_t element_bytes) {
        const int64_t at = layout.bytes;
        layout.bytes += round_up(chunk.range.numel * element_bytes, kPageBytes);
        return at;
    };
    if (chunk.parameters_on_disk()) {
        layout.parameters = place(format.parameter_bytes);
        if (format.master) layout.read_from = layout.bytes;
        layout.disk_parameters = layout.bytes;
    }
    if (!chunk.states_on_disk()) return layout;
    if (format.master) layout.master = place(4);
    int64_t image = format.master ? round_up(chunk.range.numel * 4, kImageAlignment) : 0;
    for (size_t k = 0; k < static_cast<size_t>(format.optimizer_states); ++k) {
        layout.moments[k] = place(4);
        image += round_up(packed_bytes(format.packings[k], chunk.range.numel), kImageAlignment);
    }
    layout.disk_states =
        format.packs() ? round_up(image, kPageBytes) : layout.bytes - layout.disk_parameters;
    if (format.sums) layout.sum_bytes = round_up(chunk.range.numel * 4, kPageBytes);
    return layout;
}

PackingRoom packing_room(const StateChunks& chunks, const ChunkFormat& format) {
    PackingRoom room;
    if (!format.packs()) return room;
    for (const StateChunk& chunk : chunks.all) {
        const ChunkLayout layout = chunk_layout(chunk.given_back(), format);
        if (layout.bytes == 0) continue;
        room.image_bytes = std::max(room.image_bytes, layout.disk_written());
        room.section_bytes =
            std::max(room.section_bytes, round_up(chunk.range.numel * 4, kPageBytes));
    }
    return room;
}

}  // namespace dslaunch::plan

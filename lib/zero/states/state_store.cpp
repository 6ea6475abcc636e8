#include "zero/states/state_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/packed_update.h"
#include "storage/disk/block_file.h"

namespace dslaunch::zero {

namespace {

// Returns the end of a chunk's parameters, where its states begin.
int64_t states_begin(const plan::ChunkLayout& layout) {
    if (layout.parameters < 0) return 0;
    if (layout.master >= 0) return layout.master;
    return layout.moments[0] >= 0 ? layout.moments[0] : layout.bytes;
}

device::Memory allocate_floats(device::Device& device, int64_t numel) {
    return device.allocate(Bytes{numel * int64_t{sizeof(float)}}, "optimizer states");
}

}  // namespace

StateStore::StateStore(const plan::StepPlan& plan, const plan::StepPlanOptions& options,
                       const ShardMap& map, device::Device& device, OffloadFile* file,
                       FillMoments first_moments)
    : plan_(&plan),
      format_(options.chunk_format()),
      device_(device),
      file_(file),
      disk_(format_, plan.rank, file),
      chunks_(plan.chunks.all.size()),
      first_moments_(std::move(first_moments)) {
    for (int c = 0; c < std::ssize(chunks_); ++c) {
        chunks_[c].layout = plan::chunk_layout(chunk(c).given_back(), format_);
        chunks_[c].parts = find_parts(c, map);
        add_extents(c);
    }
    take_resident_memory();
    make_buffers(options.offload.swap_buffers);
}

void StateStore::take_resident_memory() {
    int64_t parameter_bytes = 0;
    for (int c = 0; c < std::ssize(chunks_); ++c) {
        if (chunk(c).states == plan::ChunkHome::kMemory) {
            chunks_[c].resident_states = resident_.states_numel;
            resident_.states_numel += chunk(c).range.numel;
        }
        if (chunk(c).parameters == plan::ChunkHome::kMemory) {
            chunks_[c].resident_parameters = parameter_bytes;
            parameter_bytes +=
                round_up(chunk(c).range.numel * format_.parameter_bytes, storage::kBlockAlignment);
        }
    }
    if (parameter_bytes > 0) resident_.parameters = storage::IoArena(Bytes{parameter_bytes});
    if (format_.master) resident_.master = allocate_floats(device_, resident_.states_numel);
}

void StateStore::make_buffers(int64_t buffers_max) {
    int64_t passing = 0, with_sums = 0, buffer_bytes = 0, sum_bytes = 0;
    for (int c = 0; c < std::ssize(chunks_); ++c) {
        const plan::ChunkLayout& layout = chunks_[c].layout;
        sum_bytes = std::max(sum_bytes, layout.sum_bytes);
        if (!chunk(c).passes()) continue;
        buffer_bytes = std::max(buffer_bytes, layout.bytes);
        passing += 1;
        with_sums += format_.sums && chunk(c).given_back().states_on_disk() ? 1 : 0;
    }
    buffers_.resize(static_cast<size_t>(std::min(buffers_max, passing)));
    sum_buffers_.resize(std::min(buffers_.size(), static_cast<size_t>(with_sums)));
    const plan::PackingRoom packing = plan::packing_room(plan_->chunks, format_);
    const Bytes all{std::ssize(buffers_) * buffer_bytes + std::ssize(sum_buffers_) * sum_bytes +
                    packing.total_bytes()};
    if (all.value == 0) return;
    DSL_CHECK(device_.is_host(), "chunks of a device cannot pass through host memory");
    swap_memory_ = storage::IoArena(all);
    file_->register_memory(swap_memory_.bytes());
    std::span<std::byte> left = swap_memory_.bytes();
    const auto take = [&](int64_t bytes) {
        const std::span<std::byte> taken = left.first(static_cast<size_t>(bytes));
        left = left.subspan(taken.size());
        return taken;
    };
    for (SwapBuffer& buffer : buffers_) buffer.memory = take(buffer_bytes);
    for (SumBuffer& buffer : sum_buffers_) buffer.memory = take(sum_bytes);
    if (packing.total_bytes() > 0) disk_.take_room(left, packing);
}

Bytes StateStore::bytes_on_disk(const plan::StepPlan& plan, const plan::ChunkFormat& format) {
    Bytes bytes;
    for (const plan::StateChunk& chunk : plan.chunks.all) {
        const plan::ChunkLayout layout = plan::chunk_layout(chunk.given_back(), format);
        bytes += Bytes{layout.disk_written() + layout.sum_bytes};
    }
    return bytes;
}

std::ranges::iota_view<int, int> StateStore::chunks_of(int bucket) const {
    const auto b = static_cast<size_t>(bucket);
    return {plan_->chunks.first_of_bucket[b], plan_->chunks.first_of_bucket[b + 1]};
}

std::vector<ChunkPart> StateStore::find_parts(int c, const ShardMap& map) const {
    const plan::StateChunk& of = chunk(c);
    std::vector<ChunkPart> parts;
    const auto add = [&](const Range& elements, int64_t state_begin, int piece) {
        const Range both = intersect({state_begin, elements.numel}, of.range);
        if (both.numel == 0) return;
        parts.push_back({{elements.begin + both.begin - state_begin, both.numel},
                         both.begin - of.range.begin,
                         piece});
    };
    if (!of.trained()) {
        int64_t begin = 0;
        for (const Range& range : map.own_ranges(of.bucket)) {
            add(range, begin, -1);
            begin += round_up(range.numel, plan::kSliceAlignmentNumel);
        }
        return parts;
    }
    const std::vector<OwnedPiece>& pieces = map.pieces(of.bucket);
    for (size_t i = 0; i < pieces.size(); ++i)
        add(pieces[i].range, pieces[i].state_offset - map.state_begin(of.bucket),
            static_cast<int>(i));
    return parts;
}

void StateStore::add_extents(int c) {
    Chunk& made = chunks_[c];
    const plan::ChunkLayout& layout = made.layout;
    DSL_CHECK(file_ != nullptr || layout.disk_written() + layout.sum_bytes == 0,
              "chunk {} is on disk, but there is no file", c);
    const auto add = [&](const char* what, int64_t bytes) {
        return file_->add(fmt::format("{} of bucket {}, chunk {}", what, chunk(c).bucket, c),
                          Bytes{bytes});
    };
    if (layout.sum_bytes > 0) made.sums = add("gradients", layout.sum_bytes);
    const int64_t numel = chunk(c).range.numel, begin = states_begin(layout);
    if (layout.disk_parameters > 0) {
        made.parameters.extent = add("parameters", layout.disk_parameters);
        made.parameters.sections = {{0, numel, format_.parameter_bytes, -1}};
    }
    if (layout.disk_states == 0) return;
    made.states.extent = add("optimizer states", layout.disk_states);
    std::vector<ChunkSection>& sections = made.states.sections;
    if (layout.master >= 0) sections.push_back({layout.master - begin, numel, 4, -1});
    for (size_t k = 0; k < layout.moments.size(); ++k)
        if (layout.moments[k] >= 0)
            sections.push_back({layout.moments[k] - begin, numel, 4, static_cast<int>(k)});
}

OffloadFile::Part StateStore::sum_transfer(int c, const SumBuffer& buffer) const {
    return {chunks_[c].sums, buffer.memory.first(static_cast<size_t>(chunks_[c].layout.sum_bytes))};
}

std::vector<ChunkDisk::Transfer> StateStore::transfers(int c, std::span<std::byte> memory,
                                                       bool whole) {
    const plan::ChunkLayout& layout = chunks_[c].layout;
    const auto states = static_cast<size_t>(states_begin(layout));
    std::vector<ChunkDisk::Transfer> found;
    if (states > 0 && (whole || layout.read_from == 0))
        found.push_back({&chunks_[c].parameters, memory.first(states)});
    if (layout.disk_states > 0)
        found.push_back({&chunks_[c].states,
                         memory.subspan(states, static_cast<size_t>(layout.bytes) - states)});
    return found;
}

void StateStore::begin_step(bool measured) {
    skipping_ = false;
    for (SumBuffer& buffer : sum_buffers_) buffer.chunk = -1;
    disk_.measure(measured);
}

void StateStore::fill_moments(int c, size_t k, float* into) const {
    if (!first_moments_) return;
    for (const ChunkPart& part : parts(c))
        first_moments_(chunk(c).bucket, k, part.range, into + part.offset_numel);
}

void StateStore::put(int c, DType parameter_dtype, const Fill& fill) {
    const plan::ChunkLayout& layout = chunks_[c].layout;
    const bool kept = chunk(c).kept();
    storage::IoArena staging;
    std::span<std::byte> memory;
    if (layout.bytes > 0 && kept) memory = take_own_memory(c);
    if (layout.bytes > 0 && !kept) {
        staging = storage::IoArena(Bytes{layout.bytes});
        memory = staging.bytes();
    }
    const ChunkView view = view_in(c, memory.data());
    for (const ChunkPart& part : parts(c)) {
        if (view.master != nullptr)
            fill(part.range, reinterpret_cast<std::byte*>(view.master + part.offset_numel),
                 DType::kF32);
        if (view.parameters != nullptr)
            fill(part.range, view.parameters + part.offset_numel * dtype_bytes(parameter_dtype),
                 parameter_dtype);
    }
    if (memory.empty()) return;
    for (size_t k = 0; k < layout.moments.size(); ++k)
        if (layout.moments[k] >= 0)
            fill_moments(c, k, reinterpret_cast<float*>(memory.data() + layout.moments[k]));
    if (!kept) disk_.save(transfers(c, memory, true));
}

void StateStore::begin() {
    for (size_t k = 0; k < static_cast<size_t>(format_.optimizer_states); ++k) {
        if (format_.packs_in_memory(k)) {
            take_packed_moments(k);
            continue;
        }
        resident_.moments[k] = allocate_floats(device_, resident_.states_numel);
        for (int c = 0; c < std::ssize(chunks_); ++c)
            if (chunks_[c].resident_states >= 0) fill_moments(c, k, view_in(c, nullptr).moments[k]);
    }
    if (format_.sums) resident_.sums = allocate_floats(device_, resident_.states_numel);
    fill_buffers();
}

// Allocates memory for moment K in packed form, and packs its first values into it. Values of 0
// need no packing, because their packed form is 0 too.
void StateStore::take_packed_moments(size_t k) {
    DSL_CHECK(device_.is_host(), "moments of a device must be fp32");
    const StatePacking packing = format_.packings[k];
    int64_t bytes = 0;
    for (int c = 0; c < std::ssize(chunks_); ++c) {
        if (chunks_[c].resident_states < 0) continue;
        chunks_[c].packed_moments[k] = bytes;
        bytes += tiled_bytes(packing, chunk(c).range.numel);
    }
    resident_.moments[k] = device_.allocate(Bytes{bytes}, "optimizer states");
    for (int c = 0; c < std::ssize(chunks_); ++c) {
        if (!first_moments_ || chunks_[c].resident_states < 0) continue;
        const int64_t numel = chunk(c).range.numel;
        std::vector<float> values(static_cast<size_t>(numel), 0.0F);
        fill_moments(c, k, values.data());
        kernels::pack_tiles(packing, values, 0, numel, view_in(c, nullptr).packed.states[k],
                            static_cast<uint32_t>(c));
    }
}

// Reads the chunks that a step of the plan expects in the swap buffers. A chunk that is already in
// another buffer is not moved: the two buffers swap their places.
void StateStore::fill_buffers() {
    std::vector<int> last(static_cast<size_t>(plan_->swap_buffers));
    for (size_t t = 0; t < plan_->buffer_of_turn.size(); ++t)
        last[plan_->buffer_of_turn[t]] = plan_->chunks.turns[t];
    for (int b = 0; b < plan_->swap_buffers; ++b) {
        plan::Instruction whole;
        whole.chunk = last[b];
        whole.buffer = b;
        const auto there = std::ranges::find(buffers_, whole.chunk, &SwapBuffer::chunk);
        if (there != buffers_.end()) std::swap(*there, buffers_[whole.buffer]);
        read(whole);
    }
    for (SwapBuffer& unused : std::span(buffers_).subspan(static_cast<size_t>(plan_->swap_buffers)))
        unused.chunk = -1;
}

void StateStore::change_plan(const plan::StepPlan& plan) {
    DSL_CHECK(plan.chunks.all.size() == chunks_.size(), "the plan has {} chunks, expected {}",
              plan.chunks.all.size(), chunks_.size());
    const auto keeps = [](const plan::StateChunk& chunk) { return chunk.kept(); };
    if (std::ranges::equal(plan.chunks.all, plan_->chunks.all, {}, keeps, keeps)) {
        plan_ = &plan;
        return;
    }
    skipping_ = false;
    for (SwapBuffer& buffer : buffers_) {
        if (!buffer.changed) continue;
        disk_.save(transfers(buffer.chunk, buffer.memory, true));
        buffer.changed = false;
    }
    const auto differ = [&](int c, bool kept) {
        return chunk(c).kept() != kept && plan.chunks.all[c].kept() == kept;
    };
    // First writes the chunks that are no longer kept, because the newly kept chunks may need their
    // memory.
    for (int c = 0; c < std::ssize(chunks_); ++c) {
        if (!differ(c, false)) continue;
        disk_.save(transfers(c, std::as_writable_bytes(chunks_[c].own.values()), true));
        chunks_[c].own = ZeroedFloats();
    }
    for (int c = 0; c < std::ssize(chunks_); ++c) {
        if (!differ(c, true) || chunks_[c].layout.bytes == 0) continue;
        disk_.load(transfers(c, take_own_memory(c), true));
    }
    plan_ = &plan;
    fill_buffers();
}

std::span<std::byte> StateStore::take_own_memory(int c) {
    Chunk& chunk = chunks_[c];
    chunk.own = ZeroedFloats((chunk.layout.bytes + chunk.layout.sum_bytes) / 4);
    return std::as_writable_bytes(chunk.own.values());
}

void StateStore::read(const plan::Instruction& read) {
    if (skipping_) return;
    const int c = read.chunk;
    SwapBuffer* const buffer = read.buffer >= 0 ? &buffers_[read.buffer] : nullptr;
    SumBuffer* const sum_buffer = read.sum_buffer >= 0 ? &sum_buffers_[read.sum_buffer] : nullptr;
    std::vector<ChunkDisk::Transfer> chunk_parts;
    std::vector<OffloadFile::Part> sums;
    const bool brings_chunk = buffer != nullptr && buffer->chunk != c;
    if (brings_chunk) {
        DSL_CHECK(!buffer->changed, "swap buffer {} is overwritten before it was written to disk",
                  read.buffer);
        buffer->chunk = -1;
        buffer->updated = false;
        chunk_parts = transfers(c, buffer->memory, false);
    }
    if (sum_buffer != nullptr && chunks_[c].layout.sum_bytes > 0)
        sums.push_back(sum_transfer(c, *sum_buffer));
    disk_.load(chunk_parts, sums);
    if (brings_chunk) buffer->chunk = c;
    if (sum_buffer != nullptr) sum_buffer->chunk = c;
}

void StateStore::write(const plan::Instruction& write) {
    const int c = write.chunk;
    SwapBuffer* const buffer = write.buffer >= 0 ? &buffers_[write.buffer] : nullptr;
    std::vector<ChunkDisk::Transfer> chunk_parts;
    std::vector<OffloadFile::Part> sums;
    const bool takes_chunk = buffer != nullptr && buffer->changed;
    if (takes_chunk) {
        DSL_CHECK(buffer->chunk == c, "swap buffer {} contains chunk {}, expected chunk {}",
                  write.buffer, buffer->chunk, c);
        chunk_parts = transfers(c, buffer->memory, true);
    }
    if (write.sum_buffer >= 0 && !skipping_ && chunks_[c].layout.sum_bytes > 0)
        sums.push_back(sum_transfer(c, sum_buffers_[write.sum_buffer]));
    disk_.save(chunk_parts, sums);
    if (takes_chunk) buffer->changed = false;
}

float* StateStore::sums_in(int c, int buffer) const {
    const SumBuffer& held = sum_buffers_[buffer];
    DSL_CHECK(held.chunk == c, "sum buffer {} contains chunk {}, expected chunk {}", buffer,
              held.chunk, c);
    return reinterpret_cast<float*>(held.memory.data());
}

float* StateStore::sums_of(const plan::Instruction& accumulate, bool fresh) {
    const int c = accumulate.chunk;
    if (accumulate.sum_buffer < 0) {
        const Place place = chunk(c).kept() ? place_of(c) : Place{};
        return view_in(c, place.memory).sums;
    }
    if (fresh) sum_buffers_[accumulate.sum_buffer].chunk = c;
    return sums_in(c, accumulate.sum_buffer);
}

StateStore::Place StateStore::place_of(int c) {
    if (chunks_[c].layout.bytes == 0) return {};
    if (chunk(c).kept())
        return {Place::Kind::kOwn, std::as_writable_bytes(chunks_[c].own.values()).data()};
    const int turn = chunk(c).turn;
    if (turn < 0) return {Place::Kind::kDisk};
    const SwapBuffer& buffer = buffers_[plan_->buffer_of_turn[turn]];
    if (buffer.chunk != c) return {Place::Kind::kDisk};
    return {Place::Kind::kBuffer, buffer.memory.data(), &buffer};
}

ChunkView StateStore::view_in(int c, std::byte* memory) const {
    const plan::ChunkLayout& layout = chunks_[c].layout;
    const auto passing = [&](int64_t at) {
        return memory == nullptr || at < 0 ? nullptr : reinterpret_cast<float*>(memory + at);
    };
    ChunkView view;
    view.parameters = reinterpret_cast<std::byte*>(passing(layout.parameters));
    view.master = passing(layout.master);
    for (size_t k = 0; k < view.moments.size(); ++k) view.moments[k] = passing(layout.moments[k]);
    if (chunk(c).kept_states() && layout.sum_bytes > 0) view.sums = passing(layout.bytes);
    if (const int64_t at = chunks_[c].resident_parameters; at >= 0)
        view.parameters = resident_.parameters.bytes().data() + at;
    const int64_t begin = chunks_[c].resident_states;
    if (begin < 0) return view;
    const auto resident = [&](const device::Memory& all) {
        return all.bytes().empty() ? nullptr : all.floats().data() + begin;
    };
    view.master = resident(resident_.master);
    view.sums = resident(resident_.sums);
    for (size_t k = 0; k < view.moments.size(); ++k) {
        if (chunks_[c].packed_moments[k] < 0) {
            view.moments[k] = resident(resident_.moments[k]);
            continue;
        }
        view.packed.packings[k] = format_.packings[k];
        view.packed.states[k] = resident_.moments[k].bytes().data() + chunks_[c].packed_moments[k];
        view.packed.numel = chunk(c).range.numel;
        view.packed.seed = static_cast<uint32_t>(c);
    }
    return view;
}

ChunkView StateStore::view(const plan::Instruction& update) {
    const int c = update.chunk;
    // If an update has no buffer, its view contains only the parts of the chunk that stay in
    // memory, because another lane may be using the chunk's buffer at that time.
    const bool in_buffer = chunk(c).turn >= 0 && update.buffer >= 0;
    const Place place = in_buffer || chunk(c).kept() ? place_of(c) : Place{};
    DSL_CHECK(place.kind != Place::Kind::kDisk, "chunk {} is not in its swap buffer", c);
    ChunkView view = view_in(c, place.memory);
    if (update.sum_buffer >= 0) view.sums = sums_in(c, update.sum_buffer);
    return view;
}

std::optional<ChunkView> StateStore::view_at_rest(int c) {
    const Place place = place_of(c);
    const ChunkView view = view_in(c, place.memory);
    const bool at_rest = place.kind == Place::Kind::kResident || place.kind == Place::Kind::kOwn;
    return at_rest && !view.packed.any() ? std::optional(view) : std::nullopt;
}

void StateStore::visit(int c, const std::function<void(const ChunkView&)>& use) {
    const Place place = place_of(c);
    storage::IoArena staging;
    if (place.kind == Place::Kind::kDisk) {
        staging = storage::IoArena(Bytes{chunks_[c].layout.bytes});
        disk_.load(transfers(c, staging.bytes(), true));
    }
    const bool staged = place.kind == Place::Kind::kDisk;
    ChunkView view = view_in(c, staged ? staging.bytes().data() : place.memory);
    std::array<std::vector<float>, kMomentsMax> moments;
    for (size_t k = 0; k < moments.size(); ++k) {
        if (view.packed.states[k] == nullptr) continue;
        moments[k].resize(static_cast<size_t>(view.packed.numel));
        kernels::unpack_tiles(view.packed.packings[k], view.packed.states[k], 0, view.packed.numel,
                              moments[k]);
        view.moments[k] = moments[k].data();
    }
    if (overlay_ && (staged || place.kind == Place::Kind::kBuffer)) overlay_(c, view);
    use(view);
}

void StateStore::copy_out(int c, const std::byte* from, int64_t element_bytes,
                          std::byte* base) const {
    for (const ChunkPart& part : parts(c))
        device_.communication().copy(base + part.range.begin * element_bytes,
                                     from + part.offset_numel * element_bytes,
                                     part.range.numel * element_bytes);
}

// Allocates twice the memory of the largest chunk's parameters.
void StateStore::take_bounce_memory() {
    int64_t bytes = 0;
    for (const Chunk& chunk : chunks_) bytes = std::max(bytes, states_begin(chunk.layout));
    bounce_ = storage::IoArena(Bytes{2 * bytes});
}

// Reads the parameters of one chunk into one half of the bounce memory. At the same time, copies
// the parameters of the previous chunk from the other half. Packed chunks are read one after the
// other, because they share the memory of an image.
void StateStore::read_parameters(int bucket, std::byte* base) {
    struct Coming {
        int chunk = -1;
        std::span<std::byte> memory;
        std::vector<storage::ExtentTransfer> transfers;
    };
    Coming before;
    size_t half = 0;
    const auto take = [&](Coming coming) {
        if (coming.chunk < 0) return;
        file_->finish_read(std::move(coming.transfers));
        copy_out(coming.chunk, coming.memory.data(), format_.parameter_bytes, base);
    };
    for (const int c : chunks_of(bucket)) {
        if (const std::byte* const parameters = parameters_in_memory(c)) {
            copy_out(c, parameters, format_.parameter_bytes, base);
            continue;
        }
        const int64_t states = states_begin(chunks_[c].layout);
        if (states == 0) continue;
        if (bounce_.bytes().empty()) take_bounce_memory();
        const auto memory =
            bounce_.bytes().subspan(half * bounce_.bytes().size() / 2, static_cast<size_t>(states));
        StoredPart& part = chunks_[c].parameters;
        if (disk_.packs(part)) {
            const ChunkDisk::Transfer transfer{&part, memory};
            disk_.load({&transfer, 1});
            copy_out(c, memory.data(), format_.parameter_bytes, base);
            continue;
        }
        const OffloadFile::Part from{part.extent, memory};
        Coming now{c, memory, file_->begin_read({&from, 1})};
        half = 1 - half;
        take(std::exchange(before, std::move(now)));
    }
    take(std::move(before));
}

const std::byte* StateStore::parameters_in_memory(int c) {
    const Place place = place_of(c);
    // 16-bit parameters are never read into a swap buffer; the update makes them there.
    const bool made = place.kind != Place::Kind::kBuffer || place.buffer->updated;
    const bool current = made || chunks_[c].layout.read_from == 0;
    return view_in(c, current ? place.memory : nullptr).parameters;
}

void StateStore::copy_master(int bucket, float* base) {
    DSL_CHECK(format_.master, "there is no master copy");
    for (const int c : chunks_of(bucket))
        visit(c, [&](const ChunkView& view) {
            if (chunk(c).range.numel > 0)
                copy_out(c, reinterpret_cast<const std::byte*>(view.master), 4,
                         reinterpret_cast<std::byte*>(base));
        });
}

void StateStore::add_memory(runtime::MemoryAccount& account, bool sums) const {
    const auto size = [](const auto& memory) { return Bytes{std::ssize(memory.bytes())}; };
    int64_t states = 0, parameters = 0;  // elements of kept chunks
    for (const plan::StateChunk& chunk : plan_->chunks.all) {
        if (chunk.kept_states()) states += chunk.range.numel;
        if (chunk.kept_parameters()) parameters += chunk.range.numel;
    }
    account.parameters += size(resident_.parameters) + Bytes{parameters * format_.parameter_bytes};
    account.master += size(resident_.master) + Bytes{format_.master ? states * 4 : 0};
    account.moments += Bytes{states * 4 * format_.optimizer_states};
    for (const device::Memory& moments : resident_.moments) account.moments += size(moments);
    if (sums) account.gradients += size(resident_.sums) + Bytes{format_.sums ? states * 4 : 0};
    account.swap_buffers += size(swap_memory_);
}

}  // namespace dslaunch::zero

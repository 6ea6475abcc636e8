#include "zero/states/state_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "storage/disk/block_file.h"

namespace dslaunch::zero {

StateStore::StateStore(const plan::StepPlan& plan, const plan::StepPlanOptions& options,
                       const ShardMap& map, OffloadFile* file)
    : plan_(&plan),
      format_(options.chunk_format()),
      file_(file),
      parts_(plan.chunks.all.size()),
      homes_(plan.chunks.all.size()),
      stored_(plan.chunks.all.size()),
      indices_(plan.chunks.all.size()),
      slots_max_(options.offload.swap_buffers) {
    std::iota(indices_.begin(), indices_.end(), 0);
    int64_t resident = 0, parameter_bytes = 0;
    for (size_t c = 0; c < plan.chunks.all.size(); ++c) {
        const plan::StateChunk& chunk = plan.chunks.all[c];
        const plan::StateChunk on_disk = chunk.given_back();
        layouts_.push_back(plan::chunk_layout(on_disk, format_));
        const bool stays = chunk.bucket < map.layout().trained_buckets && !on_disk.states_on_disk;
        resident_at_.push_back(stays ? resident : -1);
        if (stays) resident += chunk.range.numel;
        parameters_at_.push_back(on_disk.parameters_in_memory ? parameter_bytes : -1);
        if (on_disk.parameters_in_memory)
            parameter_bytes +=
                round_up(chunk.range.numel * format_.parameter_bytes, storage::kBlockAlignment);
        if (chunk.passes) slot_stride_ = std::max(slot_stride_, layouts_.back().bytes);
        sum_stride_ = std::max(sum_stride_, layouts_.back().sum_bytes);
        find_parts(static_cast<int>(c), map);
        bounce_bytes_ = std::max(bounce_bytes_, states_begin(layouts_.back()));
        add_extents(static_cast<int>(c));
    }
    resident_numel_ = resident;
    if (parameter_bytes > 0) parameters_ = storage::IoArena(Bytes{parameter_bytes});
    if (format_.master) master_ = ZeroedFloats(resident);
    count_slots();
    const int64_t slot_bytes = slot_stride_ * slots_max_ + sum_stride_ * sum_slots_max_;
    const plan::PackingRoom packing = plan::packing_room(plan.chunks, format_);
    if (slot_bytes + packing.total_bytes() == 0) return;
    memory_ = storage::IoArena(Bytes{slot_bytes + packing.total_bytes()});
    file_->register_memory(memory_.bytes());
    if (packing.total_bytes() > 0) add_packers(slot_bytes, packing);
}

// Slots for the plan that keeps no chunk: others use fewer.
void StateStore::count_slots() {
    int64_t passing = 0;
    int64_t with_sums = 0;
    for (size_t c = 0; c < layouts_.size(); ++c) {
        const plan::StateChunk& chunk = plan_->chunks.all[c];
        passing += chunk.passes ? 1 : 0;
        with_sums += chunk.passes && format_.sums && chunk.given_back().states_on_disk ? 1 : 0;
    }
    slots_max_ = std::min(slots_max_, passing);
    sum_slots_max_ = std::min(slots_max_, with_sums);
    const auto slots = static_cast<size_t>(slots_max_);
    places_.resize(slots);
    std::iota(places_.begin(), places_.end(), 0);
    held_.assign(slots, -1);
    changed_.assign(slots, 0);
    updated_.assign(slots, 0);
    sums_held_.assign(static_cast<size_t>(sum_slots_max_), -1);
}

void StateStore::add_packers(int64_t begin, const plan::PackingRoom& room) {
    const auto take = [&](int64_t bytes) {
        const auto part =
            memory_.bytes().subspan(static_cast<size_t>(begin), static_cast<size_t>(bytes));
        begin += bytes;
        return part;
    };
    for (Packer* packer : {&reader_, &writer_}) {
        packer->image = take(room.image_bytes);
        packer->codec.emplace(format_, take(room.section_bytes));
    }
}

Bytes StateStore::bytes_on_disk(const plan::StepPlan& plan, const plan::ChunkFormat& format) {
    Bytes bytes;
    for (const plan::StateChunk& chunk : plan.chunks.all) {
        const plan::ChunkLayout layout = plan::chunk_layout(chunk.given_back(), format);
        bytes += Bytes{layout.disk_written() + layout.sum_bytes};
    }
    return bytes;
}

std::span<const int> StateStore::chunks_of(int bucket) const {
    const auto b = static_cast<size_t>(bucket);
    const auto first = static_cast<size_t>(plan_->chunks.first_of_bucket[b]);
    const auto end = static_cast<size_t>(plan_->chunks.first_of_bucket[b + 1]);
    return std::span(indices_).subspan(first, end - first);
}

void StateStore::find_parts(int c, const ShardMap& map) {
    const plan::StateChunk& of = chunk(c);
    const auto add = [&](const Range& elements, int64_t state_begin, int piece) {
        const Range both = intersect({state_begin, elements.numel}, of.range);
        if (both.numel == 0) return;
        parts_[c].push_back({{elements.begin + both.begin - state_begin, both.numel},
                             both.begin - of.range.begin,
                             piece});
    };
    if (of.bucket >= map.layout().trained_buckets) {
        int64_t begin = 0;
        for (const Range& range : map.own_ranges(of.bucket)) {
            add(range, begin, -1);
            begin += round_up(range.numel, plan::kSliceAlignmentNumel);
        }
        return;
    }
    const std::vector<OwnedPiece>& pieces = map.pieces(of.bucket);
    for (size_t i = 0; i < pieces.size(); ++i)
        add(pieces[i].range, pieces[i].state_offset - map.state_begin(of.bucket),
            static_cast<int>(i));
}

void StateStore::add_extents(int c) {
    const auto i = static_cast<size_t>(c);
    const plan::ChunkLayout& layout = layouts_[i];
    DSL_CHECK(file_ != nullptr || layout.disk_written() + layout.sum_bytes == 0,
              "chunk {} is on disk and there is no file", c);
    if (layout.sum_bytes > 0)
        stored_[i].sums =
            file_->add(fmt::format("gradients of bucket {}, chunk {}", chunk(c).bucket, c),
                       Bytes{layout.sum_bytes});
    const int64_t numel = chunk(c).range.numel, begin = states_begin(layout);
    if (layout.disk_parameters > 0) {
        StoredPart& part = stored_[i].parameters;
        part.extent =
            file_->add(fmt::format("parameters of bucket {}, chunk {}", chunk(c).bucket, c),
                       Bytes{layout.disk_parameters});
        part.sections = {{0, numel, format_.parameter_bytes, -1}};
    }
    if (layout.disk_states == 0) return;
    StoredPart& part = stored_[i].states;
    part.extent =
        file_->add(fmt::format("optimizer states of bucket {}, chunk {}", chunk(c).bucket, c),
                   Bytes{layout.disk_states});
    if (layout.master >= 0) part.sections.push_back({layout.master - begin, numel, 4, -1});
    for (size_t k = 0; k < layout.moments.size(); ++k)
        if (layout.moments[k] >= 0)
            part.sections.push_back({layout.moments[k] - begin, numel, 4, static_cast<int>(k)});
}

std::span<std::byte> StateStore::slot(int k) const {
    return memory_.bytes().subspan(static_cast<size_t>(places_[k] * slot_stride_),
                                   static_cast<size_t>(slot_stride_));
}

OffloadFile::Part StateStore::sum_transfer(int c, int k) const {
    const auto i = static_cast<size_t>(c);
    const int64_t begin = slot_stride_ * slots_max_ + sum_stride_ * k;
    return {stored_[i].sums, memory_.bytes().subspan(static_cast<size_t>(begin),
                                                     static_cast<size_t>(layouts_[i].sum_bytes))};
}

int64_t StateStore::states_begin(const plan::ChunkLayout& layout) {
    if (layout.parameters < 0) return 0;
    if (layout.master >= 0) return layout.master;
    return layout.moments[0] >= 0 ? layout.moments[0] : layout.bytes;
}

std::vector<StateStore::Transfer> StateStore::transfers(int c, std::span<std::byte> memory,
                                                        bool whole) {
    const auto i = static_cast<size_t>(c);
    const plan::ChunkLayout& layout = layouts_[i];
    const auto states = static_cast<size_t>(states_begin(layout));
    std::vector<Transfer> found;
    if (states > 0 && (whole || layout.read_from == 0))
        found.push_back({&stored_[i].parameters, memory.first(states)});
    if (layout.disk_states > 0)
        found.push_back({&stored_[i].states,
                         memory.subspan(states, static_cast<size_t>(layout.bytes) - states)});
    return found;
}

bool StateStore::packs(const StoredPart& part) const {
    return format_.lossless ||
           std::any_of(part.sections.begin(), part.sections.end(), [&](const ChunkSection& one) {
               return one.state >= 0 && format_.packings[one.state] != StatePacking::kNone;
           });
}

void StateStore::load(std::span<const Transfer> transfers,
                      std::span<const OffloadFile::Part> as_it_is) {
    std::vector<OffloadFile::Part> parts;
    size_t end = 0;
    for (const Transfer& transfer : transfers) {
        std::span<std::byte> into = transfer.memory;
        if (packs(*transfer.part)) {
            const Bytes content = file_->content(transfer.part->extent);
            into = reader_.image.subspan(end, static_cast<size_t>(content.value));
            end += into.size();
        }
        parts.push_back({transfer.part->extent, into});
    }
    parts.insert(parts.end(), as_it_is.begin(), as_it_is.end());
    if (!parts.empty()) file_->read(parts);
    for (size_t i = 0; i < transfers.size(); ++i) {
        const StoredPart& part = *transfers[i].part;
        if (packs(part))
            reader_.codec->unpack(part.sections, part.lengths, parts[i].memory,
                                  transfers[i].memory);
    }
}

void StateStore::save(std::span<const Transfer> transfers,
                      std::span<const OffloadFile::Part> as_it_is) {
    std::vector<OffloadFile::Part> parts;
    size_t end = 0;
    for (const Transfer& transfer : transfers) {
        StoredPart& part = *transfer.part;
        std::span<std::byte> from = transfer.memory;
        if (packs(part)) {
            // Drawn anew for every extent and write of it, the same in every run.
            const auto extent = static_cast<uint32_t>(part.extent.index);
            const uint32_t seed = static_cast<uint32_t>(plan_->rank) * 0x27D4EB2FU ^
                                  extent * 0x85EBCA77U ^ ++part.writes * 0xC2B2AE3DU;
            const auto image = writer_.image.subspan(end);
            const int64_t bytes =
                writer_.codec->pack(part.sections, transfer.memory, image, part.lengths, seed);
            from = image.first(static_cast<size_t>(bytes));
            end += from.size();
        }
        parts.push_back({part.extent, from});
    }
    parts.insert(parts.end(), as_it_is.begin(), as_it_is.end());
    if (!parts.empty()) file_->write(parts);
}

void StateStore::begin_step(bool measured) {
    skipping_ = false;
    std::ranges::fill(sums_held_, -1);
    if (writer_.codec) writer_.codec->measure(measured);
}

std::vector<std::string> StateStore::describe_packing() const {
    if (!writer_.codec) return {};
    return describe(writer_.codec->account(), format_);
}

void StateStore::fill_parts(int c, std::byte* memory, DType dtype, const Fill& fill) const {
    for (const ChunkPart& part : parts(c))
        fill(part.range, memory + part.offset_numel * dtype_bytes(dtype), dtype);
}

void StateStore::fill_moments(int c, size_t k, float* into) const {
    if (!fill_moments_) return;
    for (const ChunkPart& part : parts(c))
        fill_moments_(chunk(c).bucket, k, part.range, into + part.offset_numel);
}

void StateStore::put(int c, DType parameter_dtype, const Fill& fill) {
    const auto i = static_cast<size_t>(c);
    if (resident_at_[i] >= 0 && format_.master)
        fill_parts(c, reinterpret_cast<std::byte*>(master_.values().data() + resident_at_[i]),
                   DType::kF32, fill);
    if (std::byte* const parameters = resident_parameters(c))
        fill_parts(c, parameters, parameter_dtype, fill);
    const plan::ChunkLayout& layout = layouts_[i];
    if (layout.bytes == 0) return;
    const bool kept = chunk(c).kept();
    storage::IoArena staging;
    if (kept) {
        homes_[i] = ZeroedFloats((layout.bytes + layout.sum_bytes) / 4);
    } else {
        staging = storage::IoArena(Bytes{layout.bytes});
    }
    const std::span<std::byte> memory = kept ? home(c) : staging.bytes();
    if (layout.parameters >= 0)
        fill_parts(c, memory.data() + layout.parameters, parameter_dtype, fill);
    if (layout.master >= 0) fill_parts(c, memory.data() + layout.master, DType::kF32, fill);
    for (size_t k = 0; k < layout.moments.size(); ++k)
        if (layout.moments[k] >= 0)
            fill_moments(c, k, reinterpret_cast<float*>(memory.data() + layout.moments[k]));
    if (!kept) save(transfers(c, memory, true));
}

void StateStore::begin() {
    for (size_t k = 0; k < static_cast<size_t>(format_.optimizer_states); ++k) {
        moments_[k] = ZeroedFloats(resident_numel_);
        for (const int c : indices_)
            if (resident_at_[c] >= 0) fill_moments(c, k, resident(c, moments_[k]));
    }
    if (format_.sums) sums_ = ZeroedFloats(resident_numel_);
    fill_slots();
}

// What a step of the plan expects in the slots: chunks that are in others already stay where they
// lie.
void StateStore::fill_slots() {
    const int turns = static_cast<int>(plan_->chunks.turns.size());
    for (int t = turns - plan_->swap_buffers; t < turns; ++t) {
        const int c = plan_->chunks.turns[t];
        const int k = t % plan_->swap_buffers;
        const auto there = std::ranges::find(held_, c);
        if (there != held_.end())
            swap_slots(static_cast<size_t>(there - held_.begin()), static_cast<size_t>(k));
        read_chunk(c, k);
    }
    std::fill(held_.begin() + plan_->swap_buffers, held_.end(), -1);
}

void StateStore::swap_slots(size_t a, size_t b) {
    std::swap(places_[a], places_[b]);
    std::swap(held_[a], held_[b]);
    std::swap(changed_[a], changed_[b]);
    std::swap(updated_[a], updated_[b]);
}

void StateStore::change_plan(const plan::StepPlan& plan) {
    DSL_CHECK(plan.chunks.all.size() == layouts_.size(), "{} chunks instead of {}",
              plan.chunks.all.size(), layouts_.size());
    skipping_ = false;
    for (size_t k = 0; k < held_.size(); ++k) {
        if (changed_[k] == 0) continue;
        save(transfers(held_[k], slot(static_cast<int>(k)), true));
        changed_[k] = 0;
    }
    const auto differ = [&](int c, bool kept) {
        return chunk(c).kept() != kept && plan.chunks.all[c].kept() == kept;
    };
    // First those that leave: what comes may need their memory.
    for (const int c : indices_) {
        if (!differ(c, false)) continue;
        save(transfers(c, home(c), true));
        homes_[c] = ZeroedFloats();
    }
    for (const int c : indices_) {
        const plan::ChunkLayout& layout = layouts_[c];
        if (!differ(c, true) || layout.bytes == 0) continue;
        homes_[c] = ZeroedFloats((layout.bytes + layout.sum_bytes) / 4);
        load(transfers(c, home(c), true));
    }
    plan_ = &plan;
    fill_slots();
}

// Empty where the chunk is not kept, or this rank has nothing of it.
std::span<std::byte> StateStore::home(int c) {
    return std::as_writable_bytes(homes_[c].values());
}

void StateStore::read_chunk(int c, int k) {
    plan::Instruction whole;
    whole.chunk = c;
    whole.buffer = k;
    read(whole);
}

void StateStore::read(const plan::Instruction& read) {
    if (skipping_) return;
    const int c = read.chunk;
    std::vector<Transfer> chunk_parts;
    std::vector<OffloadFile::Part> sums;
    const auto slot_index = static_cast<size_t>(read.buffer);
    const bool brings_chunk = read.buffer >= 0 && held_[slot_index] != c;
    if (brings_chunk) {
        DSL_CHECK(changed_[slot_index] == 0, "slot {} is read into before it was written",
                  read.buffer);
        held_[slot_index] = -1;
        updated_[slot_index] = 0;
        chunk_parts = transfers(c, slot(read.buffer), false);
    }
    const bool brings_sums = read.sum_buffer >= 0;
    if (brings_sums && layouts_[c].sum_bytes > 0) sums.push_back(sum_transfer(c, read.sum_buffer));
    load(chunk_parts, sums);
    if (brings_chunk) held_[slot_index] = c;
    if (brings_sums) sums_held_[read.sum_buffer] = c;
}

void StateStore::write(const plan::Instruction& write) {
    const int c = write.chunk;
    std::vector<Transfer> chunk_parts;
    std::vector<OffloadFile::Part> sums;
    const auto slot_index = static_cast<size_t>(write.buffer);
    const bool takes_chunk = write.buffer >= 0 && changed_[slot_index] != 0;
    if (takes_chunk) {
        DSL_CHECK(held_[slot_index] == c, "slot {} holds chunk {}, not {}", write.buffer,
                  held_[slot_index], c);
        chunk_parts = transfers(c, slot(write.buffer), true);
    }
    const bool takes_sums = write.sum_buffer >= 0 && !skipping_;
    if (takes_sums && layouts_[c].sum_bytes > 0) sums.push_back(sum_transfer(c, write.sum_buffer));
    save(chunk_parts, sums);
    if (takes_chunk) changed_[slot_index] = 0;
}

float* StateStore::sums_in(int c, int k) const {
    const int held = sums_held_[k];
    DSL_CHECK(held == c, "sum slot {} holds chunk {}, not {}", k, held, c);
    return reinterpret_cast<float*>(sum_transfer(c, k).memory.data());
}

float* StateStore::sums_of(const plan::Instruction& accumulate, bool fresh) {
    const int c = accumulate.chunk;
    if (accumulate.sum_buffer < 0)
        return chunk(c).kept_states ? view_in(c, home(c).data()).sums : resident(c, sums_);
    if (fresh) sums_held_[accumulate.sum_buffer] = accumulate.chunk;
    return sums_in(accumulate.chunk, accumulate.sum_buffer);
}

int StateStore::slot_holding(int c) const {
    const int turn = chunk(c).turn;
    if (turn < 0) return -1;
    const int k = turn % plan_->swap_buffers;
    return held_[k] == c ? k : -1;
}

ChunkView StateStore::view_in(int c, std::byte* memory) const {
    const auto i = static_cast<size_t>(c);
    const plan::ChunkLayout& layout = layouts_[i];
    const auto floats = [&](int64_t at) { return reinterpret_cast<float*>(memory + at); };
    ChunkView view;
    if (layout.parameters >= 0) view.parameters = memory + layout.parameters;
    if (layout.master >= 0) view.master = floats(layout.master);
    for (size_t k = 0; k < view.moments.size(); ++k)
        if (layout.moments[k] >= 0) view.moments[k] = floats(layout.moments[k]);
    if (chunk(c).kept_states && layout.sum_bytes > 0) view.sums = floats(layout.bytes);
    return view;
}

ChunkView StateStore::view(const plan::Instruction& update) {
    const int c = update.chunk;
    ChunkView view;
    if (chunk(c).turn >= 0) {
        const int k = slot_holding(c);
        DSL_CHECK(k >= 0, "chunk {} is not in its slot", c);
        view = view_in(c, slot(k).data());
        if (update.sum_buffer >= 0) view.sums = sums_in(c, update.sum_buffer);
    }
    if (chunk(c).kept()) view = view_in(c, home(c).data());
    add_resident(c, view);
    return view;
}

// What of a chunk is in memory for good.
void StateStore::add_resident(int c, ChunkView& view) {
    if (std::byte* const parameters = resident_parameters(c)) view.parameters = parameters;
    if (resident_at_[c] < 0) return;
    view.master = resident(c, master_);
    for (size_t k = 0; k < view.moments.size(); ++k) view.moments[k] = resident(c, moments_[k]);
    view.sums = resident(c, sums_);
}

std::optional<ChunkView> StateStore::view_at_rest(int c) {
    const bool passes = layouts_[c].bytes > 0;
    if (passes && !chunk(c).kept()) return std::nullopt;
    ChunkView view = passes ? view_in(c, home(c).data()) : ChunkView{};
    add_resident(c, view);
    return view;
}

void StateStore::visit(int c, const std::function<void(const ChunkView&)>& use) {
    if (const std::optional<ChunkView> there = view_at_rest(c)) return use(*there);
    const int k = slot_holding(c);
    storage::IoArena staging;
    if (k < 0) {
        staging = storage::IoArena(Bytes{layouts_[c].bytes});
        load(transfers(c, staging.bytes(), true));
    }
    ChunkView view = view_in(c, k >= 0 ? slot(k).data() : staging.bytes().data());
    add_resident(c, view);
    use(view);
}

std::byte* StateStore::resident_parameters(int c) {
    if (chunk(c).kept_parameters) return home(c).data() + layouts_[c].parameters;
    const int64_t at = parameters_at_[c];
    return at < 0 ? nullptr : parameters_.bytes().data() + at;
}

float* StateStore::resident(int c, ZeroedFloats& all) const {
    return all.values().empty() ? nullptr : all.values().data() + resident_at_[c];
}

void StateStore::copy_out(int c, const std::byte* from, int64_t element_bytes,
                          std::byte* base) const {
    for (const ChunkPart& part : parts(c))
        std::memcpy(base + part.range.begin * element_bytes,
                    from + part.offset_numel * element_bytes,
                    static_cast<size_t>(part.range.numel * element_bytes));
}

// Parameters of a chunk come into one half of the bounce memory while those of the one before are
// copied from the other; packed ones one after the other, since they share an image.
void StateStore::read_parameters(int bucket, std::byte* base) {
    struct Coming {
        int chunk = -1;
        std::span<std::byte> memory;
        std::vector<storage::ExtentTransfer> transfers;
    };
    Coming before;
    int half = 0;
    const auto take = [&](Coming coming) {
        if (coming.chunk < 0) return;
        file_->finish_read(std::move(coming.transfers));
        copy_out(coming.chunk, coming.memory.data(), format_.parameter_bytes, base);
    };
    for (const int c : chunks_of(bucket)) {
        const auto i = static_cast<size_t>(c);
        if (const std::byte* const parameters = parameters_in_memory(c)) {
            copy_out(c, parameters, format_.parameter_bytes, base);
            continue;
        }
        const int64_t states = states_begin(layouts_[i]);
        if (states == 0) continue;
        if (bounce_.bytes().empty()) bounce_ = storage::IoArena(Bytes{2 * bounce_bytes_});
        const auto memory = bounce_.bytes().subspan(static_cast<size_t>(half * bounce_bytes_),
                                                    static_cast<size_t>(states));
        StoredPart& part = stored_[i].parameters;
        if (packs(part)) {
            const Transfer transfer{&part, memory};
            load({&transfer, 1});
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
    if (const std::byte* const parameters = resident_parameters(c)) return parameters;
    // 16-bit parameters are not read into a slot, only made there.
    const int k = slot_holding(c);
    const auto i = static_cast<size_t>(c);
    if (k < 0 || (layouts_[i].read_from != 0 && updated_[k] == 0)) return nullptr;
    return slot(k).data();
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

int64_t StateStore::kept_numel(bool plan::StateChunk::*field) const {
    int64_t numel = 0;
    for (const plan::StateChunk& chunk : plan_->chunks.all)
        if (chunk.*field) numel += chunk.range.numel;
    return numel;
}

Bytes StateStore::parameter_bytes() const {
    return Bytes{std::ssize(parameters_.bytes()) +
                 kept_numel(&plan::StateChunk::kept_parameters) * format_.parameter_bytes};
}

Bytes StateStore::master_bytes() const {
    const int64_t kept = format_.master ? kept_numel(&plan::StateChunk::kept_states) : 0;
    return Bytes{static_cast<int64_t>(master_.values().size_bytes()) + kept * 4};
}

Bytes StateStore::sum_bytes() const {
    const int64_t kept = format_.sums ? kept_numel(&plan::StateChunk::kept_states) : 0;
    return Bytes{static_cast<int64_t>(sums_.values().size_bytes()) + kept * 4};
}

Bytes StateStore::moment_bytes() const {
    Bytes bytes{kept_numel(&plan::StateChunk::kept_states) * 4 * format_.optimizer_states};
    for (const ZeroedFloats& moments : moments_)
        bytes += Bytes{static_cast<int64_t>(moments.values().size_bytes())};
    return bytes;
}

}  // namespace dslaunch::zero

#include "zero/states/chunk_disk.h"

#include <algorithm>

namespace dslaunch::zero {

void ChunkDisk::take_room(std::span<std::byte> memory, const plan::PackingRoom& room) {
    const auto take = [&](int64_t bytes) {
        const std::span<std::byte> part = memory.first(static_cast<size_t>(bytes));
        memory = memory.subspan(part.size());
        return part;
    };
    for (Packer* packer : {&reader_, &writer_}) {
        packer->image = take(room.image_bytes);
        packer->codec.emplace(format_, take(room.section_bytes));
    }
}

bool ChunkDisk::packs(const StoredPart& part) const {
    return format_.lossless ||
           std::any_of(part.sections.begin(), part.sections.end(), [&](const ChunkSection& one) {
               return one.state >= 0 && format_.packings[one.state] != StatePacking::kNone;
           });
}

void ChunkDisk::load(std::span<const Transfer> transfers,
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

void ChunkDisk::save(std::span<const Transfer> transfers,
                     std::span<const OffloadFile::Part> as_it_is) {
    std::vector<OffloadFile::Part> parts;
    size_t end = 0;
    for (const Transfer& transfer : transfers) {
        StoredPart& part = *transfer.part;
        std::span<std::byte> from = transfer.memory;
        if (packs(part)) {
            // The seed differs for every extent and for every write of it, and is the same in every
            // run.
            const auto extent = static_cast<uint32_t>(part.extent.index);
            const uint32_t seed = static_cast<uint32_t>(rank_) * 0x27D4EB2FU ^
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

void ChunkDisk::measure(bool on) {
    if (writer_.codec) writer_.codec->measure(on);
}

std::vector<std::string> ChunkDisk::describe_packing() const {
    if (!writer_.codec) return {};
    return describe(writer_.codec->account(), format_);
}

}  // namespace dslaunch::zero

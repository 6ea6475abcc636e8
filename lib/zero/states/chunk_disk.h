// The parts of a rank's chunks on disk. They are packed when written and unpacked when read. Data
// path: state store -> chunk disk -> chunk codec, offload file. Threads: one lane calls load(),
// another save(), at the same time. Outside of a step any one thread may call them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/layout/chunk_layout.h"
#include "zero/states/chunk_codec.h"
#include "zero/states/offload_file.h"

namespace dslaunch::zero {

// The part of a chunk in one extent. If the part is packed, the extent contains an image of the
// part's sections. Otherwise it contains the same bytes as in memory.
struct StoredPart {
    storage::ExtentId extent;
    std::vector<ChunkSection> sections;
    SectionLengths lengths{};
    uint32_t writes = 0;
};

// Moves parts of chunks; see the top of this file.
class ChunkDisk {
  public:
    // FILE is null if nothing is on disk; it must outlive this object. RANK is the plan's rank,
    // which is a part of the seed for rounding.
    ChunkDisk(const plan::ChunkFormat& format, int rank, OffloadFile* file)
        : format_(format), rank_(rank), file_(file) {}

    // Takes the memory for packing. MEMORY is room.total_bytes() long and must outlive this object.
    // If anything is packed, take_room() must be called before the first transfer.
    void take_room(std::span<std::byte> memory, const plan::PackingRoom& room);

    // A part and its place in memory.
    struct Transfer {
        StoredPart* part = nullptr;
        std::span<std::byte> memory;
    };
    // load() reads parts from disk, and save() writes them. Parts in TRANSFERS may be packed on
    // disk, parts in AS_IT_IS never are. Both calls block, and throw the errors of OffloadFile.
    void load(std::span<const Transfer> transfers,
              std::span<const OffloadFile::Part> as_it_is = {});
    void save(std::span<const Transfer> transfers,
              std::span<const OffloadFile::Part> as_it_is = {});
    // Returns true if PART is packed on disk.
    [[nodiscard]] bool packs(const StoredPart& part) const;

    // Starts or stops the measurement of packing errors (ChunkCodec::measure).
    void measure(bool on);
    // Returns a text for the log for each kind of data that is packed. Called by the thread of
    // save().
    [[nodiscard]] std::vector<std::string> describe_packing() const;

  private:
    // The codec of one direction, and its memory.
    struct Packer {
        std::span<std::byte> image;
        std::optional<ChunkCodec> codec;
    };

    plan::ChunkFormat format_;
    int rank_;
    OffloadFile* file_;
    Packer reader_;
    Packer writer_;
};

}  // namespace dslaunch::zero

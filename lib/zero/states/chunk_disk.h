// The parts of a rank's chunks on disk, packed on their way there and unpacked on their way back.
// Data path: state store -> chunk disk -> chunk codec, offload file. Threads: one lane calls
// load(), another save(), both at once. Outside of a step any one thread may call them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/layout/state_chunks.h"
#include "zero/states/chunk_codec.h"
#include "zero/states/offload_file.h"

namespace dslaunch::zero {

// The part of a chunk that lies in one extent: an image of its sections if packed, else as in
// memory.
struct StoredPart {
    storage::ExtentId extent;
    std::vector<ChunkSection> sections;
    SectionLengths lengths{};
    uint32_t writes = 0;
};

class ChunkDisk {
  public:
    // FILE is null if nothing is on disk. It must outlive this. RANK is the plan's, and packing
    // rounds by it.
    ChunkDisk(const plan::ChunkFormat& format, int rank, OffloadFile* file)
        : format_(format), rank_(rank), file_(file) {}

    // MEMORY is room.total_bytes() long and must outlive this. If anything is packed, take_room()
    // comes before the first transfer.
    void take_room(std::span<std::byte> memory, const plan::PackingRoom& room);

    // A part and its place in memory.
    struct Transfer {
        StoredPart* part = nullptr;
        std::span<std::byte> memory;
    };
    // Transfer parts; AS_IT_IS is transferred too and never packed. Both block and throw as
    // OffloadFile does.
    void load(std::span<const Transfer> transfers,
              std::span<const OffloadFile::Part> as_it_is = {});
    void save(std::span<const Transfer> transfers,
              std::span<const OffloadFile::Part> as_it_is = {});
    [[nodiscard]] bool packs(const StoredPart& part) const;

    // Starts or stops measuring packing's errors (ChunkCodec::measure).
    void measure(bool on);
    // Returns one clause for each thing that is packed, for a log. Called by save()'s thread.
    [[nodiscard]] std::vector<std::string> describe_packing() const;

  private:
    // The codec of one direction and its memory.
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

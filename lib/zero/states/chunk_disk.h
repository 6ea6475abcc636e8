// The parts of a rank's chunks on disk, packed on their way there and unpacked on their way back.
// Where it stands: state store -> chunk disk -> chunk codec, offload file. Threads: load() by one
// lane, save() by another, both at once; outside of a step by any one thread.
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

// What lies on disk together. Packed: its sections in an image of it, else as in memory.
struct StoredPart {
    storage::ExtentId extent;
    std::vector<ChunkSection> sections;
    SectionLengths lengths{};
    uint32_t writes = 0;
};

class ChunkDisk {
  public:
    // FILE: null where nothing is on disk; it must outlive this. RANK: of the plan; packing rounds
    // by it.
    ChunkDisk(const plan::ChunkFormat& format, int rank, OffloadFile* file)
        : format_(format), rank_(rank), file_(file) {}

    // MEMORY: room.total_bytes() long; it must outlive this. Before the first transfer, where
    // anything is packed.
    void take_room(std::span<std::byte> memory, const plan::PackingRoom& room);

    // A part and where it lies in memory.
    struct Transfer {
        StoredPart* part = nullptr;
        std::span<std::byte> memory;
    };
    // AS_IT_IS: what goes along and is never packed. Both block and throw as OffloadFile does.
    void load(std::span<const Transfer> transfers,
              std::span<const OffloadFile::Part> as_it_is = {});
    void save(std::span<const Transfer> transfers,
              std::span<const OffloadFile::Part> as_it_is = {});
    [[nodiscard]] bool packs(const StoredPart& part) const;

    // Whether from now on what packing changes is measured (ChunkCodec::measure).
    void measure(bool on);
    // One clause for each thing that is packed, for a log. By save()'s thread.
    [[nodiscard]] std::vector<std::string> describe_packing() const;

  private:
    // What one direction packs with.
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

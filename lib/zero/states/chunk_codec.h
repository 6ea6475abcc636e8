// The codec between the parts of a chunk and the image of it that goes to disk: moments in fewer
// bytes, the rest compressed without loss. Data path: state store -> chunk codec -> state packing,
// lossless coder. Threads: one at a time. Each direction has a codec of its own.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/kinds/state_packing.h"
#include "plan/layout/state_chunks.h"
#include "storage/swap/lossless.h"

namespace dslaunch::zero {

// An array of a chunk, in the memory of an extent.
struct ChunkSection {
    int64_t offset_bytes = 0;
    int64_t numel = 0;
    int64_t element_bytes = 4;  // 4: fp32
    int state = -1;             // index of the optimizer's state; -1: parameters or master copies

    [[nodiscard]] int64_t length_bytes() const { return numel * element_bytes; }
};

// The bytes that each section takes in an image. They are kept in memory, as its checksum is.
using SectionLengths = std::array<int64_t, 3>;

// The error of packing the moments of a step, and the savings of compressing the rest since the
// start.
struct PackingAccount {
    struct Errors {
        double squares = 0;        // sum over the packed values
        double error_squares = 0;  // sum over the differences
        double largest = 0;  // largest difference, relative to the largest of its 256 elements
    };
    std::array<Errors, 2> moments;
    int64_t plain_bytes = 0;  // bytes given to the compression
    int64_t compressed_bytes = 0;
};

class ChunkCodec {
  public:
    // SCRATCH is PackingRoom::section_bytes long and must outlive the codec.
    ChunkCodec(const plan::ChunkFormat& format, std::span<std::byte> scratch);

    // Packs SECTIONS of MEMORY, one after the other, to the start of IMAGE, which has the extent's
    // length. LENGTHS gets the bytes of each. Returns the bytes used, in whole pages. SEED
    // determines the rounding.
    [[nodiscard]] int64_t pack(std::span<const ChunkSection> sections,
                               std::span<const std::byte> memory, std::span<std::byte> image,
                               SectionLengths& lengths, uint32_t seed);
    void unpack(std::span<const ChunkSection> sections, const SectionLengths& lengths,
                std::span<const std::byte> image, std::span<std::byte> memory);

    // Starts to measure packing's errors from 0, or stops. Measuring costs an unpacking.
    void measure(bool on);
    [[nodiscard]] const PackingAccount& account() const { return account_; }

  private:
    [[nodiscard]] StatePacking packing_of(const ChunkSection& section) const;
    // Returns the bytes taken at the start of INTO.
    [[nodiscard]] int64_t compress(const ChunkSection& section, std::span<const std::byte> from,
                                   std::span<std::byte> into);
    void measure_errors(int state, StatePacking packing, std::span<const float> values,
                        std::span<const std::byte> packed);

    plan::ChunkFormat format_;
    std::span<std::byte> scratch_;
    storage::LosslessCoder coder_;
    bool measuring_ = false;
    PackingAccount account_;
};

// Returns one clause for each thing that is packed or compressed, for a log.
[[nodiscard]] std::vector<std::string> describe(const PackingAccount& account,
                                                const plan::ChunkFormat& format);

}  // namespace dslaunch::zero

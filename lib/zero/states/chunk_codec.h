// The codec that converts between the parts of a chunk and its image on disk: moments are packed
// into fewer bytes, the other parts compressed without loss. Data path: state store -> chunk codec
// -> state packing, lossless coder. Threads: one at a time. Reads and writes each have a codec of
// their own.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/kinds/state_packing.h"
#include "plan/layout/chunk_layout.h"
#include "storage/swap/lossless_coder.h"

namespace dslaunch::zero {

// An array of a chunk, in the memory that an extent is read into or written from.
struct ChunkSection {
    int64_t offset_bytes = 0;
    int64_t numel = 0;
    int64_t element_bytes = 4;  // 4: fp32
    int state = -1;             // index of an optimizer state; -1 for parameters or master copies

    // Returns the bytes in memory.
    [[nodiscard]] int64_t length_bytes() const { return numel * element_bytes; }
};

// The number of bytes of each section in an image. The numbers are kept in memory, like the image's
// checksum.
using SectionLengths = std::array<int64_t, kMomentsMax + 1>;

// The errors of packing the moments in one step. Also the size of all compressed data since the
// start, before and after compression, without the moments.
struct PackingAccount {
    // The errors of packing one moment.
    struct Errors {
        double squares = 0;        // sum of the squares of the packed values
        double error_squares = 0;  // sum of the squares of the differences
        double largest = 0;  // largest difference, divided by the largest value of its 256 elements
    };
    std::array<Errors, kMomentsMax> moments;
    int64_t plain_bytes = 0;  // bytes given to the compression
    int64_t compressed_bytes = 0;
};

// Converts in one direction; see the top of this file.
class ChunkCodec {
  public:
    // SCRATCH is PackingRoom::section_bytes long and must outlive the codec.
    ChunkCodec(const plan::ChunkFormat& format, std::span<std::byte> scratch);

    // Packs SECTIONS of MEMORY one after the other into IMAGE, from its start on. IMAGE is as long
    // as the extent. Sets LENGTHS to the number of bytes of each packed section. Returns the number
    // of bytes used, rounded up to whole pages. SEED determines how values are rounded.
    [[nodiscard]] int64_t pack(std::span<const ChunkSection> sections,
                               std::span<const std::byte> memory, std::span<std::byte> image,
                               SectionLengths& lengths, uint32_t seed);
    // Unpacks the IMAGE that pack() has made of the same SECTIONS.
    void unpack(std::span<const ChunkSection> sections, const SectionLengths& lengths,
                std::span<const std::byte> image, std::span<std::byte> memory);

    // Starts a new measurement of the packing errors if ON is true, otherwise stops the
    // measurement. A measurement starts with all errors at 0. While it runs, everything that is
    // packed is also unpacked.
    void measure(bool on);
    // Returns the errors of the last step that was measured, and the bytes saved so far.
    [[nodiscard]] const PackingAccount& account() const { return account_; }

  private:
    [[nodiscard]] StatePacking packing_of(const ChunkSection& section) const;
    // Compresses SECTION, whose bytes are FROM, to the start of INTO. Returns the number of bytes
    // used.
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

// Returns a text for the log for each kind of data that is packed or compressed.
[[nodiscard]] std::vector<std::string> describe(const PackingAccount& account,
                                                const plan::ChunkFormat& format);

}  // namespace dslaunch::zero

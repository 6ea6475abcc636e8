#include "zero/states/chunk_codec.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "kernels/packing.h"
#include "storage/disk/block_file.h"

namespace dslaunch::zero {
namespace {

std::string_view packing_name(StatePacking packing) {
    switch (packing) {
        case StatePacking::kNone:
            return "fp32";
        case StatePacking::kBf16:
            return "bf16";
        case StatePacking::kInt8:
            return "int8";
        case StatePacking::kUint8Root:
            return "uint8 of the square root";
    }
    return "unknown";
}

std::span<const float> floats_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::span<float> floats_of(std::span<std::byte> bytes) {
    return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

template <typename Byte>
std::span<Byte> part_of(std::span<Byte> bytes, int64_t begin, int64_t length) {
    return bytes.subspan(static_cast<size_t>(begin), static_cast<size_t>(length));
}

}  // namespace

ChunkCodec::ChunkCodec(const plan::ChunkFormat& format, std::span<std::byte> scratch)
    : format_(format), scratch_(scratch) {}

StatePacking ChunkCodec::packing_of(const ChunkSection& section) const {
    return section.state < 0 ? StatePacking::kNone : format_.packings[section.state];
}

int64_t ChunkCodec::pack(std::span<const ChunkSection> sections, std::span<const std::byte> memory,
                         std::span<std::byte> image, SectionLengths& lengths, uint32_t seed) {
    int64_t end = 0;
    for (size_t i = 0; i < sections.size(); ++i) {
        const ChunkSection& section = sections[i];
        const auto from = part_of(memory, section.offset_bytes, section.length_bytes());
        const StatePacking packing = packing_of(section);
        if (packing == StatePacking::kNone) {
            lengths[i] = compress(section, from, image.subspan(static_cast<size_t>(end)));
        } else {
            lengths[i] = packed_bytes(packing, section.numel);
            const auto into = part_of(image, end, lengths[i]);
            kernels::pack_state(packing, floats_of(from), into, seed + static_cast<uint32_t>(i));
            if (measuring_) measure_errors(section.state, packing, floats_of(from), into);
        }
        end += round_up(lengths[i], plan::kImageAlignment);
    }
    return round_up(end, storage::kBlockAlignment);
}

int64_t ChunkCodec::compress(const ChunkSection& section, std::span<const std::byte> from,
                             std::span<std::byte> into) {
    const int64_t plain = section.length_bytes();
    int64_t compressed = 0;
    if (format_.lossless && plain > 0) {
        const auto planes = part_of(scratch_, 0, plain);
        kernels::split_bytes(from, section.element_bytes, planes);
        // A section that compression would not shorten is stored as it is.
        compressed = coder_.compress(planes, part_of(into, 0, plain - 1));
    }
    const int64_t taken = compressed > 0 ? compressed : plain;
    if (compressed == 0) std::memcpy(into.data(), from.data(), static_cast<size_t>(plain));
    account_.plain_bytes += plain;
    account_.compressed_bytes += taken;
    return taken;
}

void ChunkCodec::unpack(std::span<const ChunkSection> sections, const SectionLengths& lengths,
                        std::span<const std::byte> image, std::span<std::byte> memory) {
    int64_t at = 0;
    for (size_t i = 0; i < sections.size(); ++i) {
        const ChunkSection& section = sections[i];
        const auto into = part_of(memory, section.offset_bytes, section.length_bytes());
        const auto from = part_of(image, at, lengths[i]);
        const StatePacking packing = packing_of(section);
        if (packing != StatePacking::kNone) {
            kernels::unpack_state(packing, from, floats_of(into));
        } else if (from.size() == into.size()) {
            std::memcpy(into.data(), from.data(), from.size());
        } else {
            const auto planes = part_of(scratch_, 0, section.length_bytes());
            coder_.expand(from, planes);
            kernels::join_bytes(planes, section.element_bytes, into);
        }
        at += round_up(lengths[i], plan::kImageAlignment);
    }
}

void ChunkCodec::measure(bool on) {
    if (on) account_.moments = {};
    measuring_ = on;
}

void ChunkCodec::measure_errors(int state, StatePacking packing, std::span<const float> values,
                                std::span<const std::byte> packed) {
    const std::span<float> back = floats_of(scratch_).first(values.size());
    kernels::unpack_state(packing, packed, back);
    PackingAccount::Errors& errors = account_.moments[state];
    for (size_t first = 0; first < values.size(); first += kPackedBlockNumel) {
        const size_t end = std::min(values.size(), first + kPackedBlockNumel);
        double largest = 0, off = 0;
        for (size_t i = first; i < end; ++i) {
            const double value = values[i], error = back[i] - value;
            errors.squares += value * value;
            errors.error_squares += error * error;
            largest = std::max(largest, std::fabs(value));
            off = std::max(off, std::fabs(error));
        }
        if (largest > 0) errors.largest = std::max(errors.largest, off / largest);
    }
}

std::vector<std::string> describe(const PackingAccount& account, const plan::ChunkFormat& format) {
    std::vector<std::string> clauses;
    for (size_t k = 0; k < static_cast<size_t>(format.optimizer_states); ++k) {
        if (format.packings[k] == StatePacking::kNone) continue;
        const PackingAccount::Errors& errors = account.moments[k];
        const double rms =
            errors.squares > 0 ? std::sqrt(errors.error_squares / errors.squares) : 0;
        clauses.push_back(fmt::format(
            "moment {} is stored as {}: the rms error is {:.2g} of the moment's rms, and the "
            "largest error is {:.2g} of the largest value in a block of {}",
            k + 1, packing_name(format.packings[k]), rms, errors.largest, kPackedBlockNumel));
    }
    if (format.lossless && account.compressed_bytes > 0)
        clauses.push_back(fmt::format("zstd: {:.3f} times smaller",
                                      static_cast<double>(account.plain_bytes) /
                                          static_cast<double>(account.compressed_bytes)));
    return clauses;
}

}  // namespace dslaunch::zero

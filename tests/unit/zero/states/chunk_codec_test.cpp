// Chunks that are packed for the disk: the values that are read back, the length of an image, the
// text in the log.
#include "zero/states/chunk_codec.h"

#include <bit>
#include <cmath>
#include <random>

#include "support/catch.h"

namespace dslaunch {

using namespace plan;
using namespace zero;
namespace {

// Enough elements that the bytes of one place fill compression blocks of their own.
constexpr int64_t kNumel = 200'000;
constexpr int64_t kPage = 4096;

// A chunk with parameters, a master copy and two moments, as a buffer holds it.
struct SwapBuffer {
    ChunkFormat format;
    ChunkLayout layout;
    std::vector<float> values;

    explicit SwapBuffer(ChunkFormat of) : format(of) {
        StateChunk chunk;
        chunk.range = {0, kNumel};
        chunk.states = ChunkHome::kDisk;
        layout = chunk_layout(chunk, format);
        values.resize(static_cast<size_t>(layout.bytes) / 4);
        std::mt19937 random(3);
        std::normal_distribution<float> normal(0, 0.02F);
        for (int64_t at : {layout.master, layout.moments[0], layout.moments[1]})
            for (int64_t i = 0; at >= 0 && i < kNumel; ++i) {
                const float value = normal(random);
                float& into = values[at / 4 + i];
                into = at == layout.moments[1] ? value * value : value;
            }
    }
    [[nodiscard]] std::vector<ChunkSection> sections() const {
        std::vector<ChunkSection> all;
        if (layout.master >= 0) all.push_back({layout.master, kNumel, 4, -1});
        for (int k = 0; k < 2; ++k) all.push_back({layout.moments[k], kNumel, 4, k});
        return all;
    }
    [[nodiscard]] std::span<const std::byte> bytes() const {
        return std::as_bytes(std::span(values));
    }
    [[nodiscard]] float moment(const std::vector<float>& from, size_t k, int64_t i) const {
        return from[layout.moments[k] / 4 + i];
    }
};

struct Packed {
    std::vector<float> image;
    SectionLengths lengths{};
    int64_t bytes = 0;
};

Packed pack(const SwapBuffer& buffer, ChunkCodec& codec, uint32_t seed = 1) {
    Packed packed;
    packed.image.resize(static_cast<size_t>(buffer.layout.disk_states) / 4);
    packed.bytes =
        codec.pack(buffer.sections(), buffer.bytes(),
                   std::as_writable_bytes(std::span(packed.image)), packed.lengths, seed);
    return packed;
}

std::vector<float> unpack(const SwapBuffer& buffer, ChunkCodec& codec, const Packed& packed) {
    std::vector<float> back(buffer.values.size());
    codec.unpack(buffer.sections(), packed.lengths,
                 std::as_bytes(std::span(packed.image)).first(static_cast<size_t>(packed.bytes)),
                 std::as_writable_bytes(std::span(back)));
    return back;
}

std::vector<std::byte> scratch() {
    return std::vector<std::byte>(static_cast<size_t>(round_up(4 * kNumel, kPage)));
}

constexpr ChunkFormat kFp32{4, true, 2};
constexpr std::array<StatePacking, kMomentsMax> kInt8{StatePacking::kInt8,
                                                      StatePacking::kUint8Root};

}  // namespace

TEST_CASE("without loss a chunk comes back bit for bit, from fewer pages where they serve") {
    ChunkFormat format = kFp32;
    format.lossless = true;
    SwapBuffer buffer(format);
    std::vector<std::byte> memory = scratch();
    ChunkCodec codec(format, memory);
    for (const bool zeros : {false, true}) {
        if (zeros) std::fill(buffer.values.begin(), buffer.values.end(), 0.0F);
        const Packed packed = pack(buffer, codec);
        CHECK(packed.bytes % kPage == 0);
        // In a number drawn about 0, one byte of four says little: the one with sign and exponent.
        CHECK(packed.bytes < buffer.layout.disk_states * 9 / 10);
        if (zeros) CHECK(packed.bytes == kPage);
        CHECK(unpack(buffer, codec, packed) == buffer.values);
    }
    const PackingAccount& account = codec.account();
    CHECK(account.plain_bytes == 2 * 3 * 4 * kNumel);
    CHECK(account.compressed_bytes < account.plain_bytes * 6 / 10);
    CHECK(describe(account, format).size() == 1);
}

TEST_CASE("numbers that do not compress are kept as they are") {
    ChunkFormat format = kFp32;
    format.lossless = true;
    SwapBuffer buffer(format);
    std::mt19937 random(9);
    for (float& value : buffer.values)
        value = std::bit_cast<float>(static_cast<uint32_t>(random()) & 0x7F7FFFFFU);
    std::vector<std::byte> memory = scratch();
    ChunkCodec codec(format, memory);
    const Packed packed = pack(buffer, codec);
    CHECK(packed.bytes <= buffer.layout.disk_states);
    const std::vector<float> back = unpack(buffer, codec, packed);
    for (const ChunkSection& section : buffer.sections())
        for (int64_t i = 0; i < kNumel; ++i) {
            const auto at = static_cast<size_t>(section.offset_bytes / 4 + i);
            REQUIRE(back[at] == buffer.values[at]);
        }
}

TEST_CASE("packed moments take the bytes of their format, master copies stay as they are") {
    for (const bool half : {false, true}) {
        ChunkFormat format = kFp32;
        format.packings =
            half ? std::array<StatePacking, kMomentsMax>{StatePacking::kBf16, StatePacking::kBf16}
                 : kInt8;
        const SwapBuffer buffer(format);
        std::vector<std::byte> memory = scratch();
        ChunkCodec codec(format, memory);
        const Packed packed = pack(buffer, codec);
        // The master copy takes 800,000 bytes. Each moment takes 400,000 bytes in bf16 or, in whole
        // lines, 203,128 in int8. The sum is rounded up to pages.
        CHECK(packed.bytes == (half ? 391 * kPage : 295 * kPage));
        CHECK(packed.bytes == buffer.layout.disk_states);
        const std::vector<float> back = unpack(buffer, codec, packed);
        bool equal = true;
        for (int64_t i = 0; i < kNumel; ++i) {
            const auto at = static_cast<size_t>(buffer.layout.master / 4 + i);
            equal = equal && back[at] == buffer.values[at];
        }
        CHECK(equal);
        // The same draw gives the same bits, another draw others.
        CHECK(unpack(buffer, codec, pack(buffer, codec)) == back);
        CHECK(unpack(buffer, codec, pack(buffer, codec, 99)) != back);
    }
}

TEST_CASE("the errors that are told are those of what comes back, of a measured step alone") {
    ChunkFormat format = kFp32;
    format.packings = kInt8;
    const SwapBuffer buffer(format);
    std::vector<std::byte> memory = scratch();
    ChunkCodec codec(format, memory);
    (void)pack(buffer, codec);
    CHECK(codec.account().moments[0].squares == 0);
    codec.measure(true);
    const Packed packed = pack(buffer, codec);
    const std::vector<float> back = unpack(buffer, codec, packed);
    for (size_t k = 0; k < 2; ++k) {
        double squares = 0, error_squares = 0;
        for (int64_t i = 0; i < kNumel; ++i) {
            const double value = buffer.moment(buffer.values, k, i);
            const double error = buffer.moment(back, k, i) - value;
            squares += value * value;
            error_squares += error * error;
        }
        const PackingAccount::Errors& errors = codec.account().moments[k];
        CHECK(errors.squares == Approx(squares));
        CHECK(errors.error_squares == Approx(error_squares));
        CHECK(errors.largest > 0.5 / 127);
        CHECK(errors.largest <= 1 / 127.0 + 1e-6);
    }
    codec.measure(false);
    (void)pack(buffer, codec, 7);
    codec.measure(true);
    CHECK(codec.account().moments[0].squares == 0);
    CHECK(describe(codec.account(), format).size() == 2);
}

}  // namespace dslaunch

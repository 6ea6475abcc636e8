#include "storage/swap/extent_store.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "base/error.h"
#include "disk_test_tools.h"
#include "support/catch.h"
#include "support/faulty_block_file.h"

namespace dslaunch::test {

using namespace storage;
namespace {

constexpr int64_t kExtentStoreBlock = kBlockAlignment;
constexpr int kExtents = 4;
constexpr Bytes kLength{6 * kExtentStoreBlock};

std::array<ExtentStore::Part, 1> one(ExtentId extent, std::span<std::byte> memory) {
    return {{{extent, memory}}};
}

// Fills BYTES with the content of extent INDEX after its write number GENERATION.
void fill_extent(std::span<std::byte> bytes, int index, int generation) {
    fill(bytes, static_cast<uint64_t>(100 * generation + index + 1));
}

struct Outcome {
    std::string error;         // empty: no error
    bool wrong_bytes = false;  // true: wrong bytes were returned as right ones
    bool struck = false;
};

// Writes every extent twice, all of them at once, and reads them after each time.
Outcome write_and_read(BlockFile& inner, const Fault& fault) {
    AlignedMemory memory(kLength * kExtents), expected(kLength);
    FaultyBlockFile file(inner, fault);  // ends first: it waits for transfers that an error
                                         // leaves in flight
    ExtentStore store(file);
    std::vector<ExtentId> extents;
    for (int i = 0; i < kExtents; ++i)
        extents.push_back(store.add(fmt::format("layers.{} exp_avg", i), kLength));
    const auto part = [&](int i) { return memory.part(i * kLength.value, kLength.value); };
    Outcome outcome;
    try {
        for (const int generation : {1, 2}) {
            std::vector<ExtentTransfer> transfers;
            for (int i = 0; i < kExtents; ++i) {
                fill_extent(part(i), i, generation);
                transfers.push_back(store.write(one(extents[i], part(i))));
            }
            for (ExtentTransfer& transfer : transfers) store.wait(std::move(transfer));
            std::fill(memory.all().begin(), memory.all().end(), std::byte{0xEE});
            transfers.clear();
            for (int i = 0; i < kExtents; ++i)
                transfers.push_back(store.read(one(extents[i], part(i))));
            for (int i = 0; i < kExtents; ++i) {
                store.wait(std::move(transfers[i]));
                fill_extent(expected.all(), i, generation);
                outcome.wrong_bytes |=
                    !std::equal(part(i).begin(), part(i).end(), expected.all().begin());
            }
        }
    } catch (const Error& error) {
        outcome.error = error.code() == ExitCode::kDisk ? error.what() : "another code";
    }
    outcome.struck = file.has_struck();
    return outcome;
}

// The words that the message must have for each kind, in addition to file and extent.
const std::map<FaultKind, std::string> kWords = {
    {FaultKind::kIoError, "(EIO)"},      {FaultKind::kShort, "expected 24576 bytes, found 12288"},
    {FaultKind::kTorn, "expected XXH3"}, {FaultKind::kBitFlip, "expected XXH3"},
    {FaultKind::kLost, "expected XXH3"}, {FaultKind::kMisdirected, "expected XXH3"},
    {FaultKind::kNoSpace, "(ENOSPC)"},   {FaultKind::kGone, "(ENODEV)"}};

bool hits_reads(FaultKind kind) {
    return kind != FaultKind::kTorn && kind != FaultKind::kLost && kind != FaultKind::kNoSpace;
}

}  // namespace

TEST_CASE("every injected fault is found on every engine before its bytes are handed on") {
    int injected = 0;
    int detected = 0;
    for (const EngineCase& engine : kEngines) {
        for (const auto& [kind, words] : kWords) {
            for (const IoDirection direction : {IoDirection::kRead, IoDirection::kWrite}) {
                if (direction == IoDirection::kRead && !hits_reads(kind)) continue;
                for (int64_t before = 0; before < 2 * kExtents; ++before) {
                    INFO(engine.name << " " << fault_name(kind) << " "
                                     << io_direction_name(direction) << " " << before);
                    OpenedFile opened(engine, kLength * kExtents,
                                      {Bytes{2 * kExtentStoreBlock}, 4, 8});
                    const Outcome outcome =
                        write_and_read(opened.file(), {kind, direction, before});
                    CHECK(outcome.struck);
                    CHECK_FALSE(outcome.wrong_bytes);
                    CHECK_THAT(outcome.error, Catch::Contains(opened.file().path_at(0) + ": "));
                    CHECK_THAT(outcome.error, Catch::Contains("exp_avg` (generation "));
                    CHECK_THAT(outcome.error, Catch::Contains("at offset "));
                    CHECK_THAT(outcome.error, Catch::Contains(words));
                    ++injected;
                    detected += outcome.error.empty() ? 0 : 1;
                }
            }
        }
    }
    std::printf("disk faults: %d injected, %d detected\n", injected, detected);
    CHECK(injected == 3 * 8 * (5 * 2 + 3));
}

TEST_CASE("without a fault, and on a slow disk, extents read as they were written") {
    for (const EngineCase& engine : kEngines) {
        for (const FaultKind kind : {FaultKind::kNone, FaultKind::kSlow}) {
            INFO(engine.name << " " << fault_name(kind));
            OpenedFile opened(engine, kLength * kExtents, {Bytes{2 * kExtentStoreBlock}, 4, 8});
            Fault fault{kind};
            fault.delay = std::chrono::milliseconds(2);
            const Outcome outcome = write_and_read(opened.file(), fault);
            CHECK(outcome.error == "");
            CHECK_FALSE(outcome.wrong_bytes);
            CHECK(outcome.struck == (kind == FaultKind::kSlow));
        }
    }
}

TEST_CASE("bytes that somebody changed in the file are found, wherever they are") {
    for (const EngineCase& engine : kEngines) {
        if (engine.memory) continue;
        OpenedFile opened(engine, kLength, {});
        AlignedMemory memory(kLength), block(Bytes{kExtentStoreBlock});
        for (int64_t at = 0; at < kLength.value; at += 997) {
            INFO(engine.name << " " << at);
            ExtentStore store(opened.file());
            const ExtentId extent = store.add("w", kLength);
            fill_extent(memory.all(), 1, 1);
            store.wait(store.write(one(extent, memory.all())));
            store.wait(store.read(one(extent, memory.all())));
            const int fd = opened.backing().files[0].fd.get();
            const int64_t place = at / kExtentStoreBlock * kExtentStoreBlock;
            REQUIRE(::pread(fd, block.all().data(), kExtentStoreBlock, place) == kExtentStoreBlock);
            block.all()[at % kExtentStoreBlock] ^= std::byte{1};
            REQUIRE(::pwrite(fd, block.all().data(), kExtentStoreBlock, place) ==
                    kExtentStoreBlock);
            CHECK_THROWS_WITH(store.wait(store.read(one(extent, memory.all()))),
                              Catch::Contains("differs from what was written"));
        }
    }
}

TEST_CASE("extents lie one behind the other, where they stay whatever is written") {
    std::mt19937 random(11);
    std::vector<int64_t> lengths;
    int64_t total = 0;
    for (int i = 0; i < 12; ++i) {
        lengths.push_back((1 + static_cast<int64_t>(random() % 9)) * kExtentStoreBlock);
        total += lengths.back();
    }
    MemoryBlockFile file(Bytes{total}, {});
    ExtentStore store(file);
    AlignedMemory memory(Bytes{9 * kExtentStoreBlock});
    std::vector<ExtentId> extents;
    std::vector<uint64_t> seeds(lengths.size(), 0);
    for (const int64_t length : lengths) extents.push_back(store.add("x", Bytes{length}));
    for (int step = 0; step < 2000; ++step) {
        const size_t i = random() % lengths.size();
        const auto part = memory.part(0, lengths[i]);
        if (seeds[i] != 0) {
            AlignedMemory expected(Bytes{lengths[i]});
            fill(expected.all(), seeds[i]);
            store.wait(store.read(one(extents[i], part)));
            REQUIRE(std::ranges::equal(part, expected.all()));
        }
        seeds[i] = 1 + random();
        fill(part, seeds[i]);
        store.wait(store.write(one(extents[i], part)));
    }
    int64_t end = 0;
    for (size_t k = 0; k < lengths.size(); ++k) {
        CHECK(store.offset_bytes(extents[k]) == end);
        end += lengths[k];
    }
    CHECK(end == total);
}

TEST_CASE("an extent that is written in part reads as long as it was written, and is checked") {
    for (const EngineCase& engine : kEngines) {
        INFO(engine.name);
        OpenedFile opened(engine, kLength * 2, {});
        ExtentStore store(opened.file());
        AlignedMemory memory(kLength), back(kLength);
        const ExtentId extent = store.add("x", kLength);
        CHECK(store.content_bytes(extent) == Bytes{});
        for (const int64_t blocks : {6, 1, 4, 6, 3}) {
            const int64_t length = blocks * kExtentStoreBlock;
            fill(memory.part(0, length), static_cast<uint64_t>(blocks));
            store.wait(store.write(one(extent, memory.part(0, length))));
            REQUIRE(store.content_bytes(extent) == Bytes{length});
            store.wait(store.read(one(extent, back.part(0, length))));
            CHECK(std::ranges::equal(back.part(0, length), memory.part(0, length)));
        }
        CHECK(store.counters().written == Bytes{20 * kExtentStoreBlock});
        CHECK(store.counters().read == Bytes{20 * kExtentStoreBlock});
    }
}

TEST_CASE("parts that lie together in memory and in the file move in one request") {
    for (const EngineCase& engine : kEngines) {
        INFO(engine.name);
        OpenedFile opened(engine, kLength * 4, {Bytes{2 * kExtentStoreBlock}, 4, 8});
        ExtentStore store(opened.file());
        AlignedMemory memory(kLength * 4), back(kLength * 4);
        std::vector<ExtentStore::Part> parts, reads;
        for (int i = 0; i < 4; ++i) {
            // The third extent does not fill its room.
            const int64_t length = i == 2 ? kExtentStoreBlock : kLength.value;
            const ExtentId extent = store.add(fmt::format("part {}", i), kLength);
            const int64_t at = i < 3 ? i * kLength.value : 2 * kLength.value + kExtentStoreBlock;
            parts.push_back({extent, memory.part(at, length)});
            reads.push_back({extent, back.part(at, length)});
            fill_extent(parts.back().memory, i, 1);
        }
        REQUIRE(store.parts_together(parts) == 3);
        CHECK(store.parts_together(std::span(parts).subspan(2)) == 1);
        CHECK(store.parts_together(std::vector{parts[1], parts[0]}) == 1);
        CHECK(store.parts_together(std::vector{parts[0], parts[2]}) == 1);
        const auto all = std::span(parts);
        store.wait(store.write(all.first(3)));
        store.wait(store.write(all.subspan(3)));
        CHECK(store.counters().writes == 2);
        CHECK(store.counters().written == kLength * 3 + Bytes{kExtentStoreBlock});
        store.wait(store.read(std::span(reads).first(3)));
        store.wait(store.read(std::span(reads).subspan(3)));
        CHECK(store.counters().reads == 2);
        CHECK(std::ranges::equal(back.part(0, 3 * kLength.value + kExtentStoreBlock),
                                 memory.part(0, 3 * kLength.value + kExtentStoreBlock)));
        if (engine.memory) continue;
        // If a bit flips in the second of three, the error names the second.
        const int fd = opened.backing().files[0].fd.get();
        AlignedMemory block(Bytes{kExtentStoreBlock});
        const int64_t place = kLength.value + kExtentStoreBlock;
        REQUIRE(::pread(fd, block.all().data(), kExtentStoreBlock, place) == kExtentStoreBlock);
        block.all()[7] ^= std::byte{1};
        REQUIRE(::pwrite(fd, block.all().data(), kExtentStoreBlock, place) == kExtentStoreBlock);
        CHECK_THROWS_WITH(store.wait(store.read(std::span(reads).first(3))),
                          Catch::Contains("`part 1` (generation 1"));
    }
}

TEST_CASE("counters tell what was moved") {
    MemoryBlockFile file(kLength * 2, {});
    ExtentStore store(file);
    AlignedMemory memory(kLength);
    const ExtentId extent = store.add("x", kLength);
    for (int i = 0; i < 3; ++i) store.wait(store.write(one(extent, memory.all())));
    ExtentTransfer first = store.read(one(extent, memory.all()));
    store.wait(std::move(first));
    CHECK(store.counters().writes == 3);
    CHECK(store.counters().reads == 1);
    CHECK(store.counters().written == kLength * 3);
    CHECK(store.counters().read == kLength);
    CHECK(store.counters().read_checksum_time.count() > 0);
    CHECK(store.counters().write_checksum_time.count() > 0);
}

}  // namespace dslaunch::test

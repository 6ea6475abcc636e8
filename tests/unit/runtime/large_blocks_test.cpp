// Blocks for large tensors: they are kept, given out again, and returned to the system.
#include "runtime/memory/large_blocks.h"

#include <cstdint>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::runtime;

namespace {
constexpr size_t kMib = size_t{1} << 20;
}

TEST_CASE("a large block is given out again for what is about as large, and its pages stay") {
    LargeBlocks blocks;
    auto* const first = static_cast<char*>(blocks.take(64 * kMib));
    CHECK(reinterpret_cast<uintptr_t>(first) % LargeBlocks::kAlignment == 0);
    first[0] = 'a';
    REQUIRE(blocks.give_back(first));
    CHECK(blocks.mapped_bytes() == 64 * kMib);
    auto* const again = static_cast<char*>(blocks.take(61 * kMib));
    CHECK(again == first);
    CHECK(again[0] == 'a');
    // The first block is in use, so another one is mapped.
    void* const other = blocks.take(64 * kMib);
    CHECK(other != again);
    CHECK(blocks.mapped_bytes() == 128 * kMib);
    CHECK(blocks.give_back(again));
    CHECK(blocks.give_back(other));
}

TEST_CASE("no more is mapped than was in use at once") {
    LargeBlocks blocks;
    void* const large = blocks.take(100 * kMib);
    CHECK(blocks.give_back(large));
    // The small request does not fit the kept 100 MiB. That block must go, because 140 MiB were
    // never in use together.
    void* const small = blocks.take(40 * kMib);
    CHECK(blocks.mapped_bytes() == 40 * kMib);
    void* const second = blocks.take(100 * kMib);
    CHECK(blocks.mapped_bytes() == 140 * kMib);
    CHECK(blocks.give_back(small));
    CHECK(blocks.give_back(second));
    // Both blocks were in use together now, so they stay for the next turn.
    void* const turn = blocks.take(40 * kMib);
    CHECK(turn == small);
    CHECK(blocks.mapped_bytes() == 140 * kMib);
    CHECK(blocks.give_back(turn));
}

TEST_CASE("the smallest block that makes room is given up") {
    LargeBlocks blocks;
    void* const a = blocks.take(100 * kMib);
    void* const b = blocks.take(20 * kMib);
    void* const c = blocks.take(40 * kMib);
    for (void* const block : {a, b, c}) CHECK(blocks.give_back(block));
    void* const other = blocks.take(30 * kMib);
    CHECK(blocks.mapped_bytes() == 150 * kMib);
    CHECK(blocks.take(100 * kMib) == a);
    CHECK(blocks.take(20 * kMib) == b);
    for (void* const block : {a, b, other}) CHECK(blocks.give_back(block));
}

TEST_CASE("memory of others, and what was given back already, is none of its blocks") {
    LargeBlocks blocks;
    int own = 0;
    CHECK_FALSE(blocks.give_back(&own));
    void* const block = blocks.take(1);
    CHECK(blocks.mapped_bytes() == LargeBlocks::kAlignment);
    CHECK(blocks.give_back(block));
    CHECK_FALSE(blocks.give_back(block));
}

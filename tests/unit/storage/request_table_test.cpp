#include "storage/disk/request_table.h"

#include <cerrno>
#include <set>
#include <utility>
#include <vector>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::storage;

namespace {

constexpr int64_t kRequestTableBlock = kBlockAlignment;

// Returns memory that is never touched; only its addresses matter.
std::span<std::byte> memory_of(int64_t blocks) {
    static std::vector<std::byte> bytes(64 * kRequestTableBlock);
    return std::span(bytes).first(static_cast<size_t>(blocks * kRequestTableBlock));
}

QueueLimits limits(int depth, int64_t blocks = 2) {
    return {Bytes{blocks * kRequestTableBlock}, depth, 8};
}

}  // namespace

TEST_CASE("requests are cut into pieces of a block at most, in order, within the depth") {
    RequestTable table({}, limits(2));
    const uint32_t first = table.add(read_request(10 * kRequestTableBlock, memory_of(5)));
    const uint32_t second = table.add(write_request(0, memory_of(1)));
    const auto a = table.next();
    const auto b = table.next();
    REQUIRE((a && b));
    CHECK_FALSE(table.next());
    CHECK(a->offset_bytes == 10 * kRequestTableBlock);
    CHECK(b->offset_bytes == 12 * kRequestTableBlock);
    CHECK(b->memory == memory_of(5).data() + 2 * kRequestTableBlock);
    CHECK(a->length_bytes == 2 * kRequestTableBlock);
    CHECK_FALSE(table.complete(*b, 2 * kRequestTableBlock));
    const auto c = table.next();
    REQUIRE(c);
    CHECK(c->length_bytes == kRequestTableBlock);
    CHECK(c->entry == first);
    CHECK_FALSE(table.complete(*a, 2 * kRequestTableBlock));
    CHECK_FALSE(table.is_finished(first));
    const auto d = table.next();
    REQUIRE(d);
    CHECK(d->entry == second);
    CHECK(d->direction == IoDirection::kWrite);
    CHECK_FALSE(table.complete(*c, kRequestTableBlock));
    REQUIRE(table.is_finished(first));
    CHECK(table.take(first).has_moved(5 * kRequestTableBlock));
    CHECK_FALSE(table.complete(*d, kRequestTableBlock));
    CHECK(table.take(second).has_moved(kRequestTableBlock));
    CHECK(table.in_flight() == 0);
}

TEST_CASE("a piece ends where its stripe ends") {
    RequestTable table({2, Bytes{3 * kRequestTableBlock}}, limits(8, 8));
    static_cast<void>(table.add(read_request(2 * kRequestTableBlock, memory_of(5))));
    const int files[] = {0, 1, 0};
    const int64_t offsets[] = {2, 0, 3};
    const int64_t lengths[] = {1, 3, 1};
    for (int i = 0; i < 3; ++i) {
        const auto piece = table.next();
        REQUIRE(piece);
        CHECK(piece->file == files[i]);
        CHECK(piece->file_offset_bytes == offsets[i] * kRequestTableBlock);
        CHECK(piece->length_bytes == lengths[i] * kRequestTableBlock);
        CHECK_FALSE(table.complete(*piece, piece->length_bytes));
    }
    CHECK_FALSE(table.next());
}

TEST_CASE("what is left of a short piece is moved again, from a whole block on") {
    RequestTable table({}, limits(1, 4));
    const uint32_t entry = table.add(read_request(0, memory_of(4)));
    auto piece = table.next();
    auto rest = table.complete(*piece, 2 * kRequestTableBlock + 100);
    REQUIRE(rest);
    CHECK(rest->offset_bytes == 2 * kRequestTableBlock);
    CHECK(rest->memory == memory_of(4).data() + 2 * kRequestTableBlock);
    CHECK(rest->length_bytes == 2 * kRequestTableBlock);
    // A second transfer that ends within a block is the end of the data.
    CHECK_FALSE(table.complete(*rest, 100));
    const IoResult result = table.take(entry);
    CHECK(result.error_number == 0);
    CHECK(result.moved_bytes == 2 * kRequestTableBlock);
    CHECK(result.failed_bytes == 2 * kRequestTableBlock);
    CHECK_FALSE(result.has_moved(4 * kRequestTableBlock));
}

TEST_CASE(
    "what has moved is told from the first byte on, without holes, in whatever order it comes") {
    RequestTable table({}, limits(4, 1));
    const uint32_t entry = table.add(read_request(7 * kRequestTableBlock, memory_of(5)));
    std::vector<Piece> pieces;
    while (const auto piece = table.next()) pieces.push_back(*piece);
    REQUIRE(pieces.size() == 4);
    CHECK(table.front_bytes(entry) == 0);
    CHECK_FALSE(table.complete(pieces[2], kRequestTableBlock));
    CHECK_FALSE(table.complete(pieces[1], kRequestTableBlock));
    CHECK(table.front_bytes(entry) == 0);
    CHECK(table.complete(pieces[0], -EINTR));
    CHECK(table.front_bytes(entry) == 0);
    CHECK_FALSE(table.complete(pieces[0], kRequestTableBlock));
    CHECK(table.front_bytes(entry) == 3 * kRequestTableBlock);
    const auto last = table.next();
    REQUIRE(last);
    CHECK_FALSE(table.complete(*last, kRequestTableBlock));
    CHECK(table.front_bytes(entry) == 3 * kRequestTableBlock);
    CHECK_FALSE(table.complete(pieces[3], -EIO));
    CHECK(table.front_bytes(entry) == 3 * kRequestTableBlock);
    REQUIRE(table.is_finished(entry));
    CHECK(table.take(entry).error_number == -EIO);
}

TEST_CASE("an interrupted piece is repeated, but not for ever") {
    for (const int error_number : {EINTR, EAGAIN}) {
        RequestTable table({}, limits(1));
        const uint32_t entry = table.add(read_request(0, memory_of(1)));
        auto piece = table.next();
        int repeats = 0;
        for (; piece && repeats < 1000; ++repeats) piece = table.complete(*piece, -error_number);
        CHECK(repeats == RequestTable::kRepeatsMax + 1);
        CHECK(table.take(entry).error_number == -error_number);
    }
}

TEST_CASE("a failed request keeps its first error and starts no further piece") {
    RequestTable table({}, limits(2, 1));
    const uint32_t entry = table.add(write_request(0, memory_of(10)));
    const auto a = table.next();
    const auto b = table.next();
    CHECK_FALSE(table.complete(*b, -EIO));
    CHECK_FALSE(table.next());
    CHECK_FALSE(table.is_finished(entry));
    CHECK_FALSE(table.complete(*a, -ENOSPC));
    REQUIRE(table.is_finished(entry));
    const IoResult result = table.take(entry);
    CHECK(result.error_number == -EIO);
    CHECK(result.failed_bytes == kRequestTableBlock);
}

TEST_CASE("an abandoned request frees its place when its pieces are done") {
    RequestTable table({}, {Bytes{kRequestTableBlock}, 4, 1});
    const uint32_t entry = table.add(read_request(0, memory_of(2)));
    const auto a = table.next();
    const auto b = table.next();
    table.abandon(entry);
    CHECK_FALSE(table.complete(*a, kRequestTableBlock));
    CHECK_FALSE(table.complete(*b, kRequestTableBlock));
    CHECK(table.add(read_request(0, memory_of(1))) == entry);
    table.stop_all();
    CHECK(table.is_finished(entry));
}

TEST_CASE("stripes tile all files exactly, for one to five of them") {
    for (int files = 1; files <= 5; ++files) {
        const StripeLayout layout{files, Bytes{8}};
        const int64_t capacity = 8 * files * 3;
        std::set<std::pair<int, int64_t>> places;
        for (int64_t at = 0; at < capacity; ++at) {
            const StripePlace place = stripe_place(layout, at);
            REQUIRE(place.file < files);
            REQUIRE(place.offset_bytes < stripe_file_bytes(layout, Bytes{capacity}).value);
            REQUIRE(places.emplace(place.file, place.offset_bytes).second);
            // The bytes of a run are next to each other.
            for (int64_t next = 1; next < std::min(place.run_bytes, capacity - at); ++next) {
                const StripePlace other = stripe_place(layout, at + next);
                REQUIRE(other.file == place.file);
                REQUIRE(other.offset_bytes == place.offset_bytes + next);
            }
        }
    }
}

TEST_CASE("two files take stripes in turn") {
    const StripeLayout layout{2, Bytes{4096}};
    CHECK(stripe_place(layout, 0).file == 0);
    CHECK(stripe_place(layout, 4096).file == 1);
    CHECK(stripe_place(layout, 4096).offset_bytes == 0);
    CHECK(stripe_place(layout, 8192 + 100).file == 0);
    CHECK(stripe_place(layout, 8192 + 100).offset_bytes == 4096 + 100);
    CHECK(stripe_place(layout, 8192 + 100).run_bytes == 4096 - 100);
    CHECK(stripe_file_bytes(layout, Bytes{3 * 4096}) == Bytes{2 * 4096});
    CHECK(stripe_file_bytes({1, Bytes{4096}}, Bytes{3 * 4096}) == Bytes{3 * 4096});
}

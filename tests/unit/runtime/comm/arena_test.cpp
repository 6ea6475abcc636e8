#include "runtime/comm/host/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/fd.h"
#include "support/catch.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace std::chrono_literals;

namespace {

UniqueFd fresh_memfd() {
    return UniqueFd(::memfd_create("dslaunch-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
}

}  // namespace

TEST_CASE("Slices of a layout overlap nowhere and lie within its bytes") {
    ArenaLayout layout(3);
    const SliceId small = layout.add_shared("small", {3});
    const SliceId large = layout.add_shared("large", mib(3));
    const SliceId scratch = layout.add_per_rank("scratch", {100});
    const BucketId bucket = layout.add_bucket("bucket", 1001);
    const Arena arena = Arena::anonymous(layout);

    std::vector<std::span<std::byte>> spans = {arena.control(), arena.shared(small),
                                               arena.shared(large)};
    for (int rank = 0; rank < 3; ++rank) {
        spans.push_back(arena.of_rank(scratch, rank));
        spans.push_back(std::as_writable_bytes(arena.bucket_of_rank(bucket, rank)));
        CHECK(arena.bucket_of_rank(bucket, rank).size() == 1001);
    }
    std::byte* const base = arena.control().data();
    for (size_t i = 0; i < spans.size(); ++i) {
        CHECK(reinterpret_cast<uintptr_t>(spans[i].data()) % 64 == 0);
        CHECK(spans[i].data() + spans[i].size() <= base + layout.total_bytes().value);
        for (size_t j = 0; j < i; ++j)
            CHECK((spans[i].data() >= spans[j].data() + spans[j].size() ||
                   spans[j].data() >= spans[i].data() + spans[i].size()));
    }
    CHECK(layout.total_bytes() ==
          layout.control_bytes() + layout.shared_bytes() + layout.part_bytes() * 3);
}

TEST_CASE("Equal calls give equal hashes, and every difference another one") {
    const auto hash = [](int ranks, const char* name, int64_t numel) {
        ArenaLayout layout(ranks);
        layout.add_shared("weights", {64});
        layout.add_bucket(name, numel);
        return layout.hash();
    };
    CHECK(hash(2, "b", 10) == hash(2, "b", 10));
    CHECK(hash(2, "b", 10) != hash(3, "b", 10));
    CHECK(hash(2, "b", 10) != hash(2, "c", 10));
    CHECK(hash(2, "b", 10) != hash(2, "b", 11));
    ArenaLayout shared(2), per_rank(2);
    shared.add_shared("x", {8});
    per_rank.add_per_rank("x", {8});
    CHECK(shared.hash() != per_rank.hash());
}

TEST_CASE("Buckets on one slice share its memory and have signals of their own") {
    const auto describe = [](int64_t offset_numel, int64_t numel) {
        ArenaLayout layout(2);
        const SliceId shared = layout.add_per_rank("shared", {1000 * 4});
        layout.add_bucket("first", 1000, shared, 0);
        layout.add_bucket("second", numel, shared, offset_numel);
        return layout;
    };
    const ArenaLayout layout = describe(32, 968);
    const ArenaLayout::Bucket& first = layout.bucket({0});
    const ArenaLayout::Bucket& second = layout.bucket({1});
    CHECK(first.posted.index != second.posted.index);
    CHECK(first.released.index != second.released.index);
    CHECK(layout.part_bytes() == kib(4));
    const Arena arena = Arena::anonymous(layout);
    for (int rank = 0; rank < 2; ++rank) {
        const std::span<float> whole = arena.bucket_of_rank({0}, rank);
        const std::span<float> part = arena.bucket_of_rank({1}, rank);
        CHECK(part.data() == whole.data() + 32);
        CHECK(part.size() == 968);
        CHECK(whole.size() == 1000);
    }
    CHECK(describe(32, 100).hash() == describe(32, 100).hash());
    CHECK(describe(32, 100).hash() != describe(48, 100).hash());
    CHECK(describe(32, 100).hash() != describe(32, 101).hash());
}

TEST_CASE("Populated pages are present before anybody touches them") {
    ArenaLayout layout(2);
    const BucketId bucket = layout.add_bucket("bucket", 1 << 20);
    const Arena arena = Arena::anonymous(layout);
    arena.populate(1);
    const std::span<float> own = arena.bucket_of_rank(bucket, 1);
    std::vector<unsigned char> present(own.size_bytes() / 4096);
    REQUIRE(::mincore(own.data(), own.size_bytes(), present.data()) == 0);
    CHECK(
        std::all_of(present.begin(), present.end(), [](unsigned char p) { return (p & 1) != 0; }));
}

TEST_CASE("Processes that open the same memfd see each other's writes, and nobody can resize it") {
    const UniqueFd memfd = fresh_memfd();
    ArenaLayout layout(2);
    const SliceId slice = layout.add_per_rank("slice", {64});
    const auto open = [&](int local_rank) {
        return Arena::from_descriptor(layout, {memfd.get(), local_rank, 5s});
    };
    const pid_t child = ::fork();
    if (child == 0) {
        const Arena arena = open(1);
        std::memset(arena.of_rank(slice, 1).data(), 7, 64);
        ::_exit(0);
    }
    ::usleep(20'000);  // the child waits for the size
    const Arena arena = open(0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(arena.of_rank(slice, 1)[63] == std::byte{7});
    CHECK(arena.of_rank(slice, 0)[63] == std::byte{0});
    CHECK(::ftruncate(memfd.get(), 0) != 0);
    CHECK(::ftruncate(memfd.get(), 1 << 30) != 0);
}

TEST_CASE("An arena that cannot be opened says which of the causes it is") {
    ArenaLayout layout(2);
    layout.add_bucket("bucket", 100);
    ArenaLayout larger(2);
    larger.add_bucket("bucket", 100'000);
    ArenaLayout renamed(2);
    renamed.add_bucket("tekcub", 100);
    const UniqueFd memfd = fresh_memfd();

    SECTION("nobody sizes it") {
        CHECK(test::code_of([&] {
                  (void)Arena::from_descriptor(layout, {memfd.get(), 1, 20ms});
              }) == ExitCode::kHang);
    }
    SECTION("another size") {
        const Arena first = Arena::from_descriptor(layout, {memfd.get(), 0, 1s});
        CHECK(test::code_of([&] {
                  (void)Arena::from_descriptor(larger, {memfd.get(), 1, 1s});
              }) == ExitCode::kDiverged);
    }
    SECTION("another layout of the same size") {
        const Arena first = Arena::from_descriptor(layout, {memfd.get(), 0, 1s});
        REQUIRE(renamed.total_bytes() == layout.total_bytes());
        CHECK(test::code_of([&] {
                  (void)Arena::from_descriptor(renamed, {memfd.get(), 1, 1s});
              }) == ExitCode::kDiverged);
    }
    SECTION("used by an earlier start") {
        const Arena first = Arena::from_descriptor(layout, {memfd.get(), 0, 1s});
        CHECK(test::code_of([&] {
                  (void)Arena::from_descriptor(layout, {memfd.get(), 0, 1s});
              }) == ExitCode::kSetup);
    }
    SECTION("not a memfd") {
        const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
        CHECK(test::code_of([&] {
                  (void)Arena::from_descriptor(layout, {null.get(), 0, 1s});
              }) == ExitCode::kSetup);
    }
    SECTION("closed") {
        CHECK(test::code_of([&] {
                  (void)Arena::from_descriptor(layout, {-1, 1, 1s});
              }) == ExitCode::kSetup);
    }
    SECTION("more than there is") {
        ArenaLayout huge(1);
        huge.add_shared("huge", gib(int64_t{1} << 20));
        CHECK(test::code_of([&] { (void)Arena::anonymous(huge); }) == ExitCode::kSetup);
    }
}

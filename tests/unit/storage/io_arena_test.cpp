#include "storage/disk/io_arena.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <vector>

#include "storage/disk/block_file.h"
#include "support/catch.h"
#include "support/child.h"
#include "support/sanitizer.h"
#include "support/skip.h"

namespace dslaunch::test {

using namespace storage;

TEST_CASE("an arena is aligned, zero, and all there") {
    for (const Bytes length : {Bytes{1}, kib(4), mib(2), mib(5) + kib(4)}) {
        IoArena arena(length);
        const auto bytes = arena.bytes();
        REQUIRE(static_cast<int64_t>(bytes.size()) == length.value);
        CHECK(reinterpret_cast<uintptr_t>(bytes.data()) % kBlockAlignment == 0);
        std::vector<unsigned char> present((bytes.size() + 4095) / 4096);
        REQUIRE(::mincore(bytes.data(), bytes.size(), present.data()) == 0);
        CHECK(std::count(present.begin(), present.end(), 1) == static_cast<long>(present.size()));
        CHECK(std::count(bytes.begin(), bytes.end(), std::byte{0}) == length.value);
        IoArena other = std::move(arena);
        CHECK(arena.bytes().empty());
        CHECK(other.bytes().data() == bytes.data());
    }
}

TEST_CASE("an arena is given back whole, and too large a one is refused") {
    if (kSanitized) {
        report_skipped("an arena beyond RLIMIT_AS", "the sanitizer's own maps are beyond it");
        return;
    }
    const ChildResult child = in_child([&]() -> std::string {
        const rlimit limit{size_t{1} << 30, size_t{1} << 30};
        if (::setrlimit(RLIMIT_AS, &limit) != 0) return "setrlimit";
        for (int i = 0; i < 100; ++i) {
            IoArena arena(mib(100));
            arena = IoArena(mib(100));
        }
        try {
            const IoArena arena(gib(2));
            return "2 GiB of 1";
        } catch (const std::bad_alloc&) {
            return "";
        }
    });
    CHECK(child.text == "");
}

}  // namespace dslaunch::test

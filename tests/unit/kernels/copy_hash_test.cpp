// The hash of copies: sums over parts, and changes by one bit.
#include "kernels/copy_hash.h"

#include <array>
#include <cstring>
#include <vector>

#include "support/catch.h"

namespace dslaunch {

using namespace kernels;

TEST_CASE("the hashes of parts add up to that of the whole, in elements of 4 and of 2 bytes") {
    std::vector<std::byte> values(1200);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::byte>(i * 37 + 11);
    const std::span<const std::byte> all(values);
    for (const int64_t bytes : {2, 4})
        for (const int64_t cut : {1, 7, 100, 299}) {
            INFO(bytes << " bytes, cut at " << cut);
            const auto at = static_cast<size_t>(cut * bytes);
            CHECK(copy_hash(all.subspan(at), bytes, cut) + copy_hash(all.first(at), bytes, 0) ==
                  copy_hash(all, bytes, 0));
        }
    CHECK(copy_hash({}, 4, 5) == 0);
}

TEST_CASE("every single bit, and two elements that change places, change the hash") {
    std::array<uint32_t, 40> values{};
    for (size_t i = 0; i < values.size(); ++i)
        values[i] = i % 3 == 0 ? 0 : static_cast<uint32_t>(i) * 0x3f0a1U;
    const auto hash = [&] { return copy_hash(std::as_bytes(std::span(values)), 4, 1000); };
    const uint64_t before = hash();
    for (uint32_t& value : values)
        for (int bit = 0; bit < 32; ++bit) {
            value ^= 1U << bit;
            CHECK(hash() != before);
            value ^= 1U << bit;
        }
    std::swap(values[1], values[2]);
    CHECK(hash() != before);
}

}  // namespace dslaunch

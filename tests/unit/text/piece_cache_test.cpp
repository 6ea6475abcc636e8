// The cache of pieces returns what was stored for a piece, or nothing, before and after it has
// grown.
#include "text/tokenizer/piece_cache.h"

#include <string>
#include <vector>

#include "support/catch.h"

namespace dslaunch::text {
namespace {

std::string piece_of(int number) {
    return std::string(static_cast<size_t>(number % 20), 'x') + std::to_string(number);
}

PieceCache::Key key_of(const std::string& piece) {
    return PieceCache::key_of(piece, 0);
}

}  // namespace

TEST_CASE("a piece that is found has its own tokens, however many came") {
    PieceCache cache;
    constexpr int kPieces = 60'000;
    int found_count = 0;
    for (int number = 0; number < kPieces; ++number) {
        const std::vector<int32_t> ids(static_cast<size_t>(number % 8), number);
        std::vector<uint32_t> ends;
        for (uint32_t i = 0; i < ids.size(); ++i) ends.push_back(3 * i + 1);
        cache.store(key_of(piece_of(number)), ids, ends);
        // The newest entry at every size of the table, and an old one.
        for (const int wanted : {number, number / 2}) {
            const PieceCache::Entry* entry = cache.find(key_of(piece_of(wanted)));
            if (entry == nullptr) continue;
            ++found_count;
            REQUIRE(entry->tokens().size() == static_cast<size_t>(wanted % 8));
            for (const int32_t id : entry->tokens()) REQUIRE(id == wanted);
            CHECK(entry->ends == (0b1001001001001001001u & ((1u << 3 * (wanted % 8)) - 1)));
        }
    }
    CHECK(found_count > kPieces);
}

}  // namespace dslaunch::text

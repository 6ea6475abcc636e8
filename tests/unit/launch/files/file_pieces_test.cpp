// The pieces of chunks tile them exactly, whatever the file's length.
#include "launch/files/sent_file.h"

#include <utility>

#include "launch/protocol/push_messages.h"
#include "support/catch.h"

namespace dslaunch {

using namespace launch;

namespace {

constexpr int64_t kChunk = kPushChunkBytes, kPiece = kPushPieceBytes;

// Follows the pieces of MISSING. Returns the ranges of bytes that they tile, joined.
std::vector<std::pair<int64_t, int64_t>> ranges_of(std::vector<uint32_t> missing, int64_t bytes) {
    std::vector<std::pair<int64_t, int64_t>> ranges;
    FilePieces pieces(std::move(missing), bytes);
    while (const auto piece = pieces.next()) {
        CHECK(piece->bytes > 0);
        CHECK(piece->bytes <= kPiece);
        if (!ranges.empty() && ranges.back().second == piece->offset) {
            ranges.back().second += piece->bytes;
        } else {
            ranges.emplace_back(piece->offset, piece->offset + piece->bytes);
        }
    }
    CHECK(!pieces.next());
    return ranges;
}

}  // namespace

TEST_CASE("pieces tile the chunks that are missing, and end with the file") {
    for (const int64_t bytes : {int64_t{1}, kPiece - 1, kPiece, kPiece + 1, kChunk - 1, kChunk,
                                kChunk + 1, 3 * kChunk, 3 * kChunk + kPiece + 7}) {
        INFO(bytes << " bytes");
        const auto chunks = static_cast<uint32_t>((bytes + kChunk - 1) / kChunk);
        std::vector<uint32_t> all;
        for (uint32_t chunk = 0; chunk < chunks; ++chunk) all.push_back(chunk);
        CHECK(ranges_of(all, bytes) == std::vector<std::pair<int64_t, int64_t>>{{0, bytes}});
        CHECK(FilePieces::has_all(all, bytes));
        CHECK(!FilePieces::has_all({chunks}, bytes));
        const int64_t last = int64_t{chunks - 1} * kChunk;
        CHECK(ranges_of({chunks - 1}, bytes) ==
              std::vector<std::pair<int64_t, int64_t>>{{last, bytes}});
    }
    CHECK(ranges_of({1, 3}, 5 * kChunk) ==
          std::vector<std::pair<int64_t, int64_t>>{{kChunk, 2 * kChunk}, {3 * kChunk, 4 * kChunk}});
}

TEST_CASE("nothing is missing of an empty file") {
    CHECK(ranges_of({}, 0).empty());
    CHECK(FilePieces::has_all({}, 0));
    CHECK(!FilePieces::has_all({0}, 0));
    CHECK(!FilePieces().next());
}

}  // namespace dslaunch

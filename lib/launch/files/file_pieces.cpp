#include "launch/files/file_pieces.h"

#include <algorithm>

#include "launch/protocol/push_messages.h"

namespace dslaunch::launch {

bool FilePieces::has_all(const std::vector<uint32_t>& chunks, int64_t file_bytes) {
    return std::ranges::all_of(
        chunks, [&](uint32_t chunk) { return int64_t{chunk} * kPushChunkBytes < file_bytes; });
}

std::optional<FilePieces::Piece> FilePieces::next() {
    if (chunk_ == missing_.size()) return std::nullopt;
    const int64_t begin = int64_t{missing_[chunk_]} * kPushChunkBytes;
    const int64_t end = std::min(begin + kPushChunkBytes, file_bytes_);
    const Piece piece{begin + done_, std::min(kPushPieceBytes, end - begin - done_)};
    done_ += piece.bytes;
    if (begin + done_ == end) {
        ++chunk_;
        done_ = 0;
    }
    return piece;
}

}  // namespace dslaunch::launch

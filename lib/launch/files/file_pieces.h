// The pieces in which the chunks that a host lacks of a file travel, in order. Data path: the
// receiver's answer -> [here] -> frames of a push, requests for weights. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace dslaunch::launch {

class FilePieces {
  public:
    struct Piece {
        int64_t offset = 0;  // in the file
        int64_t bytes = 0;   // at most kPushPieceBytes
    };

    FilePieces() = default;  // there is none
    // MISSING: numbers of chunks of kPushChunkBytes. REQUIRES: has_all(missing, file_bytes).
    FilePieces(std::vector<uint32_t> missing, int64_t file_bytes)
        : missing_(std::move(missing)), file_bytes_(file_bytes) {}

    // True if a file of FILE_BYTES has all CHUNKS.
    [[nodiscard]] static bool has_all(const std::vector<uint32_t>& chunks, int64_t file_bytes);
    // Returns the next piece and steps behind it; nullopt: there is none any more.
    [[nodiscard]] std::optional<Piece> next();

  private:
    std::vector<uint32_t> missing_;
    int64_t file_bytes_ = 0;
    size_t chunk_ = 0;  // index into missing_
    int64_t done_ = 0;  // bytes of that chunk
};

}  // namespace dslaunch::launch

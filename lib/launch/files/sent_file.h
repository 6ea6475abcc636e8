// A file that is sent to another machine: its facts, the hashes by which the receiver finds the
// chunks that it lacks, its bytes, and the pieces in which chunks are sent. One thread; blocks
// while it reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "launch/files/file_facts.h"
#include "launch/protocol/push_messages.h"

namespace dslaunch::launch {

// A file that is open for reading.
class SentFile {
  public:
    // Throws Error{kInput} that names PATH if it cannot be read, is not a plain file, or is larger
    // than kPushFileBytesMax.
    explicit SentFile(std::string path);

    // Returns size, mode and time; the caller sets id, path and hash.
    [[nodiscard]] const PushOffer& facts() const { return facts_; }
    // Returns the SHA-256 of all bytes, hex; from CACHE if the file is in it. Calls ALIVE every few
    // megabytes. Throws Error{kInput} if the file cannot be read.
    [[nodiscard]] std::string hash(HashCache& cache, const std::function<void()>& alive) const;
    // Returns the SHA-256 of each chunk, in the form of PushChunks.
    [[nodiscard]] std::string chunk_hashes(const std::function<void()>& alive) const;
    // Returns LENGTH bytes at OFFSET. Throws Error{kInput} when the file has become shorter.
    [[nodiscard]] std::string read(int64_t offset, int64_t length) const;

  private:
    std::string path_;
    UniqueFd fd_;
    PushOffer facts_;
};

// The pieces, in order, in which the chunks that a host lacks are sent. Data path: the receiver's
// answer -> [here] -> frames of a push, requests for weights. Pure.
class FilePieces {
  public:
    // Consecutive bytes of the file that fit into a frame.
    struct Piece {
        int64_t offset = 0;  // in the file
        int64_t bytes = 0;   // at most kPushPieceBytes
    };

    FilePieces() = default;  // no pieces
    // MISSING: the indices of the missing chunks; a chunk has kPushChunkBytes. REQUIRES:
    // has_all(missing, file_bytes).
    FilePieces(std::vector<uint32_t> missing, int64_t file_bytes)
        : missing_(std::move(missing)), file_bytes_(file_bytes) {}

    // Returns true if a file of FILE_BYTES bytes is long enough to contain all CHUNKS.
    [[nodiscard]] static bool has_all(const std::vector<uint32_t>& chunks, int64_t file_bytes);
    // Returns the next piece and steps past it; nullopt if no piece is left.
    [[nodiscard]] std::optional<Piece> next();

  private:
    std::vector<uint32_t> missing_;
    int64_t file_bytes_ = 0;
    size_t chunk_ = 0;  // index into missing_
    int64_t done_ = 0;  // bytes of this chunk that next() has returned
};

}  // namespace dslaunch::launch

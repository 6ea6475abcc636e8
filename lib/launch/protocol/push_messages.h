// The messages between launcher and agent while a file is pushed. The launcher sends PushOffer; the
// agent answers kEqual or kWantsChunks. The launcher then sends PushChunks; the agent answers
// kWantsPieces with the missing chunks. The launcher sends these chunks as PushPieces; the agent
// answers kTook to each piece. The last answer is kDone; kFailed is possible at any point. One file
// is pushed at a time.
//
// The launcher can also fetch a file from a host. It sends FetchRequests, and the agent answers
// each with a FetchReply, which contains a PushOffer, PushChunks or PushPiece about the file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text/message.h"

namespace dslaunch::launch {

using dslaunch::decode;
using dslaunch::encode;

inline constexpr int64_t kPushChunkBytes = 4 << 20;             // unit of hashing, comparing and
                                                                // keeping
inline constexpr int64_t kPushPieceBytes = 256 << 10;           // largest piece in a frame
inline constexpr size_t kPushHashBytes = 32;                    // SHA-256, raw
inline constexpr int64_t kPushFileBytesMax = int64_t{2} << 40;  // largest file: its PushChunks
                                                                // fills one frame

// Payload of FrameKind::kPushOffer: a file that the launcher wants to send.
struct PushOffer {
    static constexpr const char* kWhat = "a message about a pushed file";
    int64_t id = 0;           // id of the file in all messages about it
    std::string path;         // absolute path of the target
    std::string source_path;  // if nothing is at `path`, an equal file at this path serves as well;
                              // empty: none
    int64_t bytes = 0;
    int64_t mode = 0;  // permission bits
    int64_t modified_ns = 0;
    std::string hash;  // SHA-256 of all bytes, hex

    bool operator==(const PushOffer&) const = default;
};

// Payload of FrameKind::kPushChunks: the hashes of a file's chunks.
struct PushChunks {
    static constexpr const char* kWhat = "a message about a pushed file";
    int64_t id = 0;
    std::string hashes;  // kPushHashBytes for each chunk, in order

    bool operator==(const PushChunks&) const = default;
};

// Payload of FrameKind::kPushPiece: some bytes of a chunk.
struct PushPiece {
    static constexpr const char* kWhat = "a message about a pushed file";
    int64_t id = 0;
    int64_t offset = 0;
    std::string bytes;

    bool operator==(const PushPiece&) const = default;
};

// The receiver's state after a message about a file.
enum class PushState : uint8_t {
    kEqual = 1,    // the file is there already
    kWantsChunks,  // the file is not there
    kWantsPieces,  // wants pieces of the chunks in `missing`, in this order
    kTook,         // took the piece at `offset`
    kDone,         // the file is there now
    kBusy,         // another job pushes the same file; offer it again soon
    kFailed,       // the reason is in `error`
};
// Returns true if STATE is a value of the enum; values in messages are checked with this function.
inline bool is_known(PushState state) {
    return state >= PushState::kEqual && state <= PushState::kFailed;
}

// Payload of FrameKind::kPushAnswer.
struct PushAnswer {
    static constexpr const char* kWhat = "a message about a pushed file";
    int64_t id = 0;
    PushState state = PushState::kFailed;
    std::vector<uint32_t> missing;
    int64_t offset = 0;
    std::string error;

    bool operator==(const PushAnswer&) const = default;
};

// The message that a FetchRequest asks for.
enum class FetchPart : uint8_t {
    kSize = 1,  // PushOffer without its hash; -1 bytes: there is no such file
    kOffer,     // PushOffer
    kChunks,    // PushChunks
    kPiece,     // PushPiece: `bytes` at `offset`
};
// Returns true if PART is a value of the enum; values in messages are checked with this function.
inline bool is_known(FetchPart part) {
    return part >= FetchPart::kSize && part <= FetchPart::kPiece;
}

// Payload of FrameKind::kFetch.
struct FetchRequest {
    static constexpr const char* kWhat = "a message about a pushed file";
    int64_t id = 0;
    std::string path;
    FetchPart part = FetchPart::kSize;
    int64_t offset = 0;
    int64_t bytes = 0;  // at most kPushPieceBytes

    bool operator==(const FetchRequest&) const = default;
};

// Payload of FrameKind::kFetched.
struct FetchReply {
    static constexpr const char* kWhat = "a message about a pushed file";
    int64_t id = 0;
    FetchPart part = FetchPart::kSize;
    std::string payload;  // the encoded message
    std::string error;    // why the file cannot be read, in words; else empty

    bool operator==(const FetchReply&) const = default;
};

// Returns the number of chunks of a file of FILE_BYTES.
[[nodiscard]] constexpr int64_t push_chunk_count(int64_t file_bytes) {
    return (file_bytes + kPushChunkBytes - 1) / kPushChunkBytes;
}

}  // namespace dslaunch::launch

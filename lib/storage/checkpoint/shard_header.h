// The header of a checkpoint's .safetensors file: names, shapes and offsets of its pieces. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/checkpoint/manifest.h"

namespace dslaunch::storage {

// A file that a rank writes.
struct ShardPlan {
    std::string name;  // weights-00000-of-00004.safetensors
    std::vector<CheckpointPiece> pieces;
};

// The data begin at a multiple of this number of bytes, so that direct I/O can read them.
inline constexpr int64_t kDataAlignment = 4096;

// Return the type of a piece's elements in the file (fp32 for states), and its size in bytes.
[[nodiscard]] DType piece_dtype(const Checkpoint& checkpoint, const CheckpointPiece& piece);
[[nodiscard]] int64_t piece_bytes(const Checkpoint& checkpoint, const CheckpointPiece& piece);

// Returns all bytes before the first piece: the length of the JSON, and the JSON. Throws
// Error{kCheckpoint} naming a tensor whose name is not UTF-8.
[[nodiscard]] std::string shard_header(const ShardPlan& plan, const Checkpoint& checkpoint);

}  // namespace dslaunch::storage

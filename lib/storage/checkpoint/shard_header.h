// The header of a checkpoint's .safetensors file: names, shapes and places of its pieces. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/checkpoint/manifest.h"

namespace dslaunch::storage {

// The file that a rank writes.
struct ShardPlan {
    std::string name;  // weights-00000-of-00004.safetensors
    std::vector<CheckpointPiece> pieces;
};

// Data begin at a multiple of this many bytes, so that they can be read past the page cache.
inline constexpr int64_t kDataAlignment = 4096;

[[nodiscard]] DType piece_dtype(const Checkpoint& checkpoint, const CheckpointPiece& piece);
[[nodiscard]] int64_t piece_bytes(const Checkpoint& checkpoint, const CheckpointPiece& piece);

// All that stands before the first piece, the length of the JSON included. Throws
// Error{kCheckpoint} naming a tensor whose name is no UTF-8.
[[nodiscard]] std::string shard_header(const ShardPlan& plan, const Checkpoint& checkpoint);

}  // namespace dslaunch::storage

// Writes one file of a checkpoint: first a header, made from the plan, then the pieces one after
// the other. Meanwhile hashes the pieces and looks for NaN and infinity in them. One owner at a
// time; blocks on the disk.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "storage/checkpoint/file_tree.h"
#include "storage/checkpoint/manifest.h"
#include "storage/checkpoint/shard_header.h"

namespace dslaunch::storage {

// A file of a checkpoint that is being written.
class ShardWriter {
  public:
    // FOLDER must exist. CHECKPOINT must already have tensors, states, id and step, with the same
    // values on all ranks. CHECKPOINT and TREE must outlive the writer. Throws what FileTree
    // throws.
    ShardWriter(FileTree& tree, const std::string& folder, ShardPlan plan,
                const Checkpoint& checkpoint);
    ~ShardWriter();
    // Writes the next bytes of the pieces, in the order of the pieces and in parts of any size.
    void write(std::span<const std::byte> bytes);
    // Makes the file durable and returns its description. REQUIRES: all pieces are written.
    [[nodiscard]] CheckpointFile finish();

    // Returns the size of the file that the writer would write.
    [[nodiscard]] static Bytes file_bytes(const ShardPlan& plan, const Checkpoint& checkpoint);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch::storage

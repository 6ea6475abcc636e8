// Writes one file of a checkpoint: a header, made from the plan, then the pieces one after the
// other, hashed and scanned as they pass. One owner at a time; blocks on the disk.
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

class ShardWriter {
  public:
    // FOLDER exists. CHECKPOINT has tensors, states, id and step, the same on all ranks; it and
    // TREE must outlive the writer. Throws as FileTree does.
    ShardWriter(FileTree& tree, const std::string& folder, ShardPlan plan,
                const Checkpoint& checkpoint);
    ~ShardWriter();
    // Writes the next bytes of the pieces in their order, split as the caller likes.
    void write(std::span<const std::byte> bytes);
    // Makes the file durable before it returns. REQUIRES: all pieces are written.
    [[nodiscard]] CheckpointFile finish();

    // Returns the bytes of the file that would be written.
    [[nodiscard]] static Bytes file_bytes(const ShardPlan& plan, const Checkpoint& checkpoint);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch::storage

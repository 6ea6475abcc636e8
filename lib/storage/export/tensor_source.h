// Stored tensors, whatever holds them: a checkpoint, a .safetensors file, a folder of such files.
// `dslaunch ckpt` compares, sums up and exports them. Nothing is read whole: memory does not grow
// with the tensors. Threads: one at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/range.h"
#include "storage/checkpoint/manifest.h"

namespace dslaunch::storage {

// Bytes of a tensor or state whose hash is known without reading them.
struct HashedRange {
    Range elements;
    Hash128 hash;
    bool operator==(const HashedRange&) const = default;
};

class TensorSource {
  public:
    TensorSource() = default;
    TensorSource(const TensorSource&) = delete;
    TensorSource& operator=(const TensorSource&) = delete;
    virtual ~TensorSource() = default;

    // Returns the folder or file, as messages name it.
    [[nodiscard]] virtual const std::string& path() const = 0;
    [[nodiscard]] virtual const std::vector<CheckpointTensor>& tensors() const = 0;
    // Returns training state, names of optimizer states, config. Null: weights alone.
    [[nodiscard]] virtual const Checkpoint* checkpoint() const = 0;

    // Gives USE the ELEMENTS of a tensor's weights (in its dtype) or state (fp32): neighbours that
    // tile ELEMENTS, in the order of its memory, a MiB or two each at most. Throws
    // Error{kCheckpoint} naming file, tensor and offset if they have changed. Blocks on the disk.
    using Use = std::function<void(const Range& elements, std::span<const std::byte> bytes)>;
    virtual void for_each(int tensor, int state, const Range& elements, const Use& use) const = 0;

    // Returns the ranges that tile a tensor's weights or state, by their begins; empty if hashes
    // are not known.
    [[nodiscard]] virtual std::vector<HashedRange> hashes(int tensor, int state) const = 0;
};

// True if a tensor has optimizer states.
[[nodiscard]] bool has_states(const CheckpointTensor& tensor);
[[nodiscard]] DType dtype_of(const CheckpointTensor& tensor, int state);

// Figures of the finite values, in fp64; all are 0 if no value is finite.
struct TensorStats {
    double norm = 0;  // Euclidean
    double min = 0;
    double max = 0;
    double mean = 0;
    int64_t nan_count = 0;
    int64_t infinite_count = 0;
};

// Throws as SOURCE does.
[[nodiscard]] TensorStats stats_of(const TensorSource& source, int tensor, int state);

}  // namespace dslaunch::storage

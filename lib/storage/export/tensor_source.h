// Stored tensors, whatever contains them: a checkpoint, a .safetensors file, or a folder with such
// files. `dslaunch ckpt` compares, summarizes and exports them. They are read in parts, so that the
// memory needed does not depend on their size. Threads: one at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/range.h"
#include "storage/checkpoint/manifest.h"

namespace dslaunch::storage {

// A range of a tensor's or state's elements whose hash is known without reading them.
struct HashedRange {
    Range elements;
    Hash128 hash;
    bool operator==(const HashedRange&) const = default;
};

// An open checkpoint, file or folder.
class TensorSource {
  public:
    TensorSource() = default;
    TensorSource(const TensorSource&) = delete;
    TensorSource& operator=(const TensorSource&) = delete;
    virtual ~TensorSource() = default;

    // Returns the path of the folder or file, for messages.
    [[nodiscard]] virtual const std::string& path() const = 0;
    // Returns all tensors. The functions below get a tensor as an index into this list, and a state
    // as kWeights or an index into Checkpoint::states.
    [[nodiscard]] virtual const std::vector<CheckpointTensor>& tensors() const = 0;
    // Returns the training state, the names of optimizer states and the config; null if there are
    // only weights.
    [[nodiscard]] virtual const Checkpoint* checkpoint() const = 0;

    // Calls USE with the ELEMENTS of a tensor's weights (in its dtype) or of a state (fp32). Each
    // call has a part of at most a MiB or two. The parts are in the order of the tensor's memory,
    // without gaps. Throws Error{kCheckpoint} naming file, tensor and offset if the bytes have
    // changed. Blocks on the disk.
    using Use = std::function<void(const Range& elements, std::span<const std::byte> bytes)>;
    virtual void for_each(int tensor, int state, const Range& elements, const Use& use) const = 0;

    // Returns ranges that cover a tensor's weights or state without gaps, sorted by their
    // beginnings; empty if the hashes are not known.
    [[nodiscard]] virtual std::vector<HashedRange> hashes(int tensor, int state) const = 0;
};

// Returns true if a tensor has optimizer states.
[[nodiscard]] bool has_states(const CheckpointTensor& tensor);
// Returns the type of the elements that TensorSource::for_each() passes on.
[[nodiscard]] DType dtype_of(const CheckpointTensor& tensor, int state);

// Statistics of the finite values, in fp64; all are 0 if no value is finite.
struct TensorStats {
    double norm = 0;  // Euclidean
    double min = 0;
    double max = 0;
    double mean = 0;
    int64_t nan_count = 0;
    int64_t infinite_count = 0;
};

// Reads the tensor's weights or state. Throws what SOURCE throws.
[[nodiscard]] TensorStats stats_of(const TensorSource& source, int tensor, int state);

}  // namespace dslaunch::storage

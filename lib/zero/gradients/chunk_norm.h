// The sums of squares for the gradient norm, computed while the gradients of a chunk are in memory.
// A block is summed as a whole even if it lies in two chunks. Data path: state store -> chunk norm
// -> gradient norm. Thread: the communication lane.
#pragma once

#include <span>
#include <vector>

#include "plan/layout/flat_layout.h"
#include "zero/gradients/gradient_norm.h"
#include "zero/states/state_store.h"

namespace dslaunch::zero {

// Sums squares chunk by chunk; see the top of this file.
class ChunkNorm {
  public:
    // BLOCKS is GradientNorm::blocks(). QUEUE computes the sums of values that are in its device's
    // memory; the values must stay there until take(). BLOCKS and QUEUE must outlive this object.
    ChunkNorm(std::span<const NormBlock> blocks, const StateStore& states,
              const plan::FlatLayout& layout, device::Queue& queue);

    // Adds the gradient sums of chunk C. SUMS points to the sum of the chunk's first element.
    // REQUIRES: the sums are complete, and the chunks of a bucket come in order, one bucket after
    // the other.
    void add(int c, const float* sums);
    // Returns the sum of squares of each block, after all chunks were added. Then the next step may
    // begin.
    [[nodiscard]] std::vector<double> take();

  private:
    // A chunk's part of a block.
    struct Share {
        int block = 0;             // index into blocks
        Range range;               // within the bucket
        int64_t offset_numel = 0;  // offset in the chunk
    };

    void sum_later(int c, const float* sums);

    std::span<const NormBlock> blocks_;
    device::Queue& queue_;
    std::vector<std::vector<Share>> shares_;  // one per chunk, with a bucket's blocks in order
    std::vector<double> squares_;             // one per block
    std::vector<device::FloatArray> later_;   // one per block, empty if the queue works at once
    std::vector<char> done_;                  // one per block, 1 once this step's squares are known
    std::vector<float> broken_;               // [block_numel]: a block that is in several shares
    int64_t broken_numel_ = 0;                // elements of broken_ filled so far
};

}  // namespace dslaunch::zero

// The squares for the gradient norm, taken while the sums of a chunk are in memory. A block is
// summed as one even if it lies in two chunks. Data path: state store -> chunk norm -> gradient
// norm. Thread: the communication lane.
#pragma once

#include <span>
#include <vector>

#include "plan/layout/flat_layout.h"
#include "zero/gradients/gradient_norm.h"
#include "zero/states/state_store.h"

namespace dslaunch::zero {

class ChunkNorm {
  public:
    // BLOCKS is GradientNorm::blocks(). QUEUE sums values in the memory of its device, which stay
    // there until take(). Both must outlive this.
    ChunkNorm(std::span<const NormBlock> blocks, const StateStore& states,
              const plan::FlatLayout& layout, device::Queue& queue);

    // Adds SUMS, chunk C's, complete, from its first element on. REQUIRES: the chunks of a bucket
    // come in order, one bucket after the other.
    void add(int c, const float* sums);
    // Returns the sum of squares of each block once all chunks were added. The next step begins.
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
    std::vector<device::Values> later_;       // one per block, empty if the queue works at once
    std::vector<char> done_;                  // one per block, 1 once this step's squares are there
    std::vector<float> broken_;               // [block_numel], a block that lies in several shares
    int64_t broken_numel_ = 0;                // elements of it that have come
};

}  // namespace dslaunch::zero

// The squares for the gradient norm, taken while the sums of a chunk are in memory: a block's are
// added up as one even where it lies in two chunks. Where it stands: state store -> chunk norm ->
// gradient norm. Communication lane.
#pragma once

#include <span>
#include <vector>

#include "plan/layout/flat_layout.h"
#include "zero/gradients/gradient_norm.h"
#include "zero/states/state_store.h"

namespace dslaunch::zero {

class ChunkNorm {
  public:
    // BLOCKS: GradientNorm::blocks(); they must outlive this.
    ChunkNorm(std::span<const NormBlock> blocks, const StateStore& states,
              const plan::FlatLayout& layout);

    // SUMS: of chunk C, complete, from its first element on. REQUIRES: the chunks of a bucket come
    // in order, one bucket after the other.
    void add(int c, const float* sums);
    // The sum of squares of each block, once all chunks were added; the next step begins.
    [[nodiscard]] std::vector<double> take();

  private:
    // What a chunk has of a block.
    struct Share {
        int block = 0;             // index into blocks
        Range range;               // within the bucket
        int64_t offset_numel = 0;  // in the chunk
    };

    std::span<const NormBlock> blocks_;
    std::vector<std::vector<Share>> shares_;  // by chunk, of a bucket's blocks in order
    std::vector<double> squares_;             // by block
    std::vector<char> done_;                  // by block: this step's squares are there
    std::vector<float> broken_;               // [block_numel] of a block in several shares
    int64_t broken_numel_ = 0;                // of it that has come
};

}  // namespace dslaunch::zero

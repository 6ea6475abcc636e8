// The attention of a decoder's layers: projections, norms of heads, rotation, cache, output. Data
// path: normed rows -> [here] -> this rank's part of the branch. One thread calls; the team's
// threads compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "decoder/decode/key_value_cache.h"
#include "decoder/decode/rank_sum.h"
#include "decoder/decode/rotary_table.h"

namespace dslaunch::decoder {

// The attention of a decoder, which is computed for one layer after the other.
class LayerAttention {
  public:
    // CONFIG, FREQUENCIES, MATH and RANKS must outlive this object. RANKS is null if there is only
    // one rank. Throws Error{kSetup} if there is no memory for the cache.
    LayerAttention(const storage::TransformerConfig& config, const CacheShape& shape,
                   const storage::RotaryFrequencies& frequencies, RowMath& math, RankSum* ranks);

    // Computes the rotation of BATCH, which all layers use. Call it before run().
    void prepare(const Batch& batch) { rotary_.prepare(batch); }
    // Computes OUT from X for the layer INDEX, and stores the keys and values of BATCH. SHAPE of X
    // and OUT: [rows, width]. With several ranks, OUT must be summed over them.
    void run(const Batch& batch, const LayerWeights& layer, size_t index, const float* x,
             float* out);

  private:
    void project(const LayerWeights& layer, const float* x, int64_t rows);
    void norm_heads(const LayerWeights& layer, int64_t rows);
    void norm_whole(const LayerWeights& layer, int64_t rows);

    const storage::TransformerConfig& config_;
    const int64_t heads_, key_heads_;  // numbers of heads on this rank
    RowMath& math_;
    RankSum* ranks_;
    RotaryTable rotary_;
    KeyValueCache cache_;
    std::vector<float> squares_;  // [rows, 2]: sums of the squares of queries and of keys
    // Buffers [rows, ...] fp32.
    std::vector<float> query_, key_, value_, fused_, mixed_;
};

}  // namespace dslaunch::decoder

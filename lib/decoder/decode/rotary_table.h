// The rotation of queries and keys by their positions (RoPE). Data path: positions of a batch ->
// [here] -> queries and keys of each layer. One thread calls.
#pragma once

#include <cstdint>
#include <vector>

#include "decoder/decode/batch.h"
#include "decoder/decode/row_math.h"

namespace dslaunch::decoder {

// The cosines and sines for the rows of one batch, which all layers use.
class RotaryTable {
  public:
    // CONFIG and FREQUENCIES must outlive this object.
    RotaryTable(const storage::TransformerConfig& config,
                const storage::RotaryFrequencies& frequencies)
        : config_(config), frequencies_(frequencies) {}

    // Computes the tables for BATCH; does nothing if the model has no rotation.
    void prepare(const Batch& batch);

    // Rows of heads that are rotated in place. SHAPE: [rows, heads, head_width].
    struct Heads {
        float* values = nullptr;
        int64_t heads = 0;
    };
    // Rotates the queries and keys of LAYER for ROWS rows of the batch, unless the layer has no
    // rotation.
    void rotate(const LayerWeights& layer, Heads queries, Heads keys, int64_t rows,
                RowMath& math) const;

  private:
    struct Table {
        std::vector<float> cos, sin;  // [rows, pairs]
    };
    void fill(Table& table, const Batch& batch, const std::vector<double>& frequencies,
              const std::vector<double>& late, double magnitude) const;

    const storage::TransformerConfig& config_;
    const storage::RotaryFrequencies& frequencies_;
    Table all_;
    Table window_;  // for layers whose attention sees only the last positions
};

}  // namespace dslaunch::decoder

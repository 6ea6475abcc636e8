// The MLP of a decoder's layers. A layer has one MLP, or several experts and a router that chooses
// some of them for each row. Data path: normed rows -> [here] -> this rank's part of the branch.
// One thread calls; the team's threads compute.
#pragma once

#include <cstdint>
#include <vector>

#include "decoder/decode/row_math.h"

namespace dslaunch::decoder {

// The MLPs of a decoder, which are computed for one layer after the other.
class LayerMlp {
  public:
    // CONFIG and MATH must outlive this object.
    LayerMlp(const storage::TransformerConfig& config, RowMath& math)
        : config_(config), math_(math) {}

    // Computes OUT from X for LAYER. SHAPE of both: [rows, width]. With several ranks, OUT must be
    // summed over them. REQUIRES: OUT is not X.
    void run(const LayerWeights& layer, const float* x, int64_t rows, float* out);

  private:
    void dense(const MlpWeights& mlp, const float* x, int64_t rows, float* out);
    void experts(const LayerWeights& layer, const float* x, int64_t rows, float* out);
    void add_shared_expert(const LayerWeights& layer, const float* x, int64_t rows, float* out);

    const storage::TransformerConfig& config_;
    RowMath& math_;
    std::vector<float> gate_, up_;  // [rows, width of the MLP]
};

}  // namespace dslaunch::decoder

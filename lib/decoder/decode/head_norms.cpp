// The steps between a layer's projections and the turning of their heads: norms of queries and
// keys, and the cap on numbers.
#include <algorithm>
#include <cmath>
#include <utility>

#include "decoder/decode/decoder.h"

namespace dslaunch::decoder {

using storage::HeadNormKind;

void Decoder::norm_heads(const LayerWeights& layer, int64_t rows) {
    const int64_t head = config_.head_width, heads = weights_.heads, keys = weights_.key_heads;
    if (config_.head_norm == HeadNormKind::kWhole) {
        norm_whole(layer, rows);
    } else if (config_.head_norm != HeadNormKind::kNone) {
        norm_rows(layer.query_norm, query_.data(), head, query_.data(), rows * heads);
        norm_rows(layer.key_norm, key_.data(), head, key_.data(), rows * keys);
    }
    if (config_.projection_cap == 0) return;
    const auto cap = static_cast<float>(config_.projection_cap);
    for (const auto& [values, width] :
         {std::pair{query_.data(), heads * head}, std::pair{key_.data(), keys * head},
          std::pair{value_.data(), keys * head}})
        for (int64_t i = 0; i < rows * width; ++i) values[i] = std::clamp(values[i], -cap, cap);
}

// An RMS norm over the heads of all ranks.
void Decoder::norm_whole(const LayerWeights& layer, int64_t rows) {
    const int64_t head = config_.head_width;
    struct Part {
        float* values;
        const NormWeights& norm;
        int64_t width, whole_width;
    };
    const Part parts[] = {
        {query_.data(), layer.query_norm, weights_.heads * head, config_.heads * head},
        {key_.data(), layer.key_norm, weights_.key_heads * head, config_.key_heads * head}};
    squares_.resize(static_cast<size_t>(2 * rows));
    for_rows(2 * rows, [&](int64_t i) {
        const Part& part = parts[i % 2];
        const float* row = part.values + i / 2 * part.width;
        double sum = 0;
        for (int64_t k = 0; k < part.width; ++k) sum += static_cast<double>(row[k]) * row[k];
        squares_[i] = static_cast<float>(sum);
    });
    if (ranks_ != nullptr) ranks_->sum(squares_);
    const auto epsilon = static_cast<float>(config_.norm_epsilon);
    for_rows(2 * rows, [&](int64_t i) {
        const Part& part = parts[i % 2];
        float* row = part.values + i / 2 * part.width;
        const float mean = squares_[i] / static_cast<float>(part.whole_width);
        const float factor = 1 / std::sqrt(mean + epsilon);
        for (int64_t k = 0; k < part.width; ++k) row[k] *= factor * part.norm.weight[k];
    });
}

}  // namespace dslaunch::decoder

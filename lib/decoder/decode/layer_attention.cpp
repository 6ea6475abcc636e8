#include "decoder/decode/layer_attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dslaunch::decoder {

using storage::HeadNormKind;

LayerAttention::LayerAttention(const storage::TransformerConfig& config, const CacheShape& shape,
                               const storage::RotaryFrequencies& frequencies, RowMath& math,
                               RankSum* ranks)
    : config_(config),
      heads_(shape.heads),
      key_heads_(shape.key_heads),
      math_(math),
      ranks_(ranks),
      rotary_(config, frequencies),
      cache_(config, shape) {}

void LayerAttention::run(const Batch& batch, const LayerWeights& layer, size_t index,
                         const float* x, float* out) {
    const int64_t rows = std::ssize(batch.rows), width = heads_ * config_.head_width;
    project(layer, x, rows);
    norm_heads(layer, rows);
    rotary_.rotate(layer, {query_.data(), heads_}, {key_.data(), key_heads_}, rows, math_);
    cache_.store(batch, index, key_.data(), value_.data(), math_);
    grow(mixed_, rows * width);
    cache_.attend(batch, index, layer.has_window, query_.data(), mixed_.data(), math_);
    const RowMath::Use output{&layer.output, out};
    math_.multiply({&output, 1}, mixed_.data(), width, rows);
}

void LayerAttention::project(const LayerWeights& layer, const float* x, int64_t rows) {
    const int64_t head = config_.head_width;
    const int64_t queries = heads_ * head, keys = key_heads_ * head;
    grow(query_, rows * queries);
    grow(key_, rows * keys);
    grow(value_, rows * keys);
    if (is_empty(layer.fused)) {
        const RowMath::Use uses[] = {{&layer.query, query_.data()},
                                     {&layer.key, key_.data()},
                                     {&layer.value, value_.data()}};
        return math_.multiply(uses, x, config_.width, rows);
    }
    grow(fused_, rows * (queries + 2 * keys));
    const RowMath::Use fused{&layer.fused, fused_.data()};
    math_.multiply({&fused, 1}, x, config_.width, rows);
    // For each key head, the row has the queries that share the key, then the key, then its value.
    const int64_t shared = queries / key_heads_;
    for (int64_t i = 0; i < rows * key_heads_; ++i) {
        const float* from = fused_.data() + i * (shared + 2 * head);
        std::copy_n(from, shared, query_.data() + i * shared);
        std::copy_n(from + shared, head, key_.data() + i * head);
        std::copy_n(from + shared + head, head, value_.data() + i * head);
    }
}

void LayerAttention::norm_heads(const LayerWeights& layer, int64_t rows) {
    const int64_t head = config_.head_width, heads = heads_, keys = key_heads_;
    if (config_.head_norm == HeadNormKind::kWhole) {
        norm_whole(layer, rows);
    } else if (config_.head_norm != HeadNormKind::kNone) {
        math_.norm(layer.query_norm, query_.data(), head, query_.data(), rows * heads);
        math_.norm(layer.key_norm, key_.data(), head, key_.data(), rows * keys);
    }
    if (config_.projection_cap == 0) return;
    const auto cap = static_cast<float>(config_.projection_cap);
    for (const auto& [values, width] :
         {std::pair{query_.data(), heads * head}, std::pair{key_.data(), keys * head},
          std::pair{value_.data(), keys * head}})
        for (int64_t i = 0; i < rows * width; ++i) values[i] = std::clamp(values[i], -cap, cap);
}

// Computes an RMS norm over the heads of all ranks together.
void LayerAttention::norm_whole(const LayerWeights& layer, int64_t rows) {
    const int64_t head = config_.head_width;
    struct Part {
        float* values;
        const NormWeights& norm;
        int64_t width, whole_width;
    };
    const Part parts[] = {
        {query_.data(), layer.query_norm, heads_ * head, config_.heads * head},
        {key_.data(), layer.key_norm, key_heads_ * head, config_.key_heads * head}};
    squares_.resize(static_cast<size_t>(2 * rows));
    math_.for_rows(2 * rows, [&](int64_t i) {
        const Part& part = parts[i % 2];
        const float* row = part.values + i / 2 * part.width;
        double sum = 0;
        for (int64_t k = 0; k < part.width; ++k) sum += static_cast<double>(row[k]) * row[k];
        squares_[i] = static_cast<float>(sum);
    });
    if (ranks_ != nullptr) ranks_->sum(squares_);
    const auto epsilon = static_cast<float>(config_.norm_epsilon);
    math_.for_rows(2 * rows, [&](int64_t i) {
        const Part& part = parts[i % 2];
        float* row = part.values + i / 2 * part.width;
        const float mean = squares_[i] / static_cast<float>(part.whole_width);
        const float factor = 1 / std::sqrt(mean + epsilon);
        for (int64_t k = 0; k < part.width; ++k) row[k] *= factor * part.norm.weight[k];
    });
}

}  // namespace dslaunch::decoder

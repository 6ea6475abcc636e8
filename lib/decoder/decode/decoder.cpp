#include "decoder/decode/decoder.h"

#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/kinds/half_arrays.h"

namespace dslaunch::decoder {

using storage::TransformerConfig;

Decoder::Decoder(const TransformerConfig& config, DecoderWeights weights, DecoderOptions options,
                 kernels::ThreadTeam& team, RankSum* ranks)
    : config_(config),
      weights_(std::move(weights)),
      options_(std::move(options)),
      ranks_(ranks),
      math_(config, team),
      attention_(config,
                 {std::ssize(weights_.layers), weights_.heads, weights_.key_heads, options_.pages,
                  options_.cache},
                 options_.frequencies, math_, ranks),
      mlp_(config, math_) {
    DSL_CHECK(options_.rows_max > 0, "decoder options");
    if (options_.streams) stream_.emplace(weights_);
}

int64_t Decoder::page_bytes(const TransformerConfig& config, const DecoderPart& part, DType cache) {
    return KeyValueCache::page_bytes(config, {.layers = part.last_layer - part.first_layer,
                                              .key_heads = config.key_heads / part.tensor_ranks,
                                              .dtype = cache});
}

std::span<float> Decoder::hidden(const Batch& batch) {
    const int64_t numel = std::ssize(batch.rows) * config_.width;
    grow(hidden_, numel);
    return {hidden_.data(), static_cast<size_t>(numel)};
}

void Decoder::embed(const Batch& batch) {
    const int64_t width = config_.width;
    float* hidden = this->hidden(batch).data();
    grow(normed_, std::ssize(batch.rows) * width);
    const auto row_of = [&](const OwnedMatrix& table, int64_t row, float* to) {
        const DType dtype = kernels::dtype_of(table.matrix.shape.form);
        to_fp32(table.matrix.data + row * width * dtype_bytes(dtype), dtype, width, to);
    };
    const auto scale = static_cast<float>(config_.embedding_scale);
    math_.for_rows(std::ssize(batch.rows), [&](int64_t i) {
        const BatchRow& row = batch.rows[static_cast<size_t>(i)];
        float* to = hidden + i * width;
        row_of(weights_.embedding, row.token, to);
        if (scale != 1)
            for (int64_t k = 0; k < width; ++k) to[k] *= scale;
        if (!config_.has_learned_positions) return;
        float* position = normed_.data() + i * width;
        row_of(weights_.positions, row.position, position);
        math_.kernels().add(to, position, to, width);
    });
}

void Decoder::run_layers(const Batch& batch) {
    const int64_t rows = std::ssize(batch.rows);
    DSL_CHECK(rows > 0 && rows <= options_.rows_max, "a batch cannot have {} rows", rows);
    attention_.prepare(batch);
    grow(normed_, rows * config_.width);
    grow(branch_, rows * config_.width);
    if (config_.is_parallel) grow(mlp_branch_, rows * config_.width);
    for (size_t index = 0; index < weights_.layers.size(); ++index) {
        const LayerWeights& layer = weights_.layers[index];
        if (stream_) stream_->ask(index + 1);
        if (config_.is_parallel) {
            // Attention and MLP read the same residual stream.
            math_.norm(config_.has_shared_norm ? layer.attention_norm : layer.mlp_norm,
                       hidden_.data(), config_.width, normed_.data(), rows);
            mlp_.run(layer, normed_.data(), rows, mlp_branch_.data());
            if (!config_.has_shared_norm)
                math_.norm(layer.attention_norm, hidden_.data(), config_.width, normed_.data(),
                           rows);
            attention_.run(batch, layer, index, normed_.data(), branch_.data());
            math_.kernels().add(mlp_branch_.data(), branch_.data(), branch_.data(),
                                rows * config_.width);
            add_branch({}, rows);
            continue;
        }
        math_.norm(layer.attention_norm, hidden_.data(), config_.width, normed_.data(), rows);
        attention_.run(batch, layer, index, normed_.data(), branch_.data());
        add_branch(layer.attention_post_norm, rows);
        math_.norm(layer.mlp_norm, hidden_.data(), config_.width, normed_.data(), rows);
        mlp_.run(layer, normed_.data(), rows, branch_.data());
        add_branch(layer.mlp_post_norm, rows);
    }
}

// Sums the branch over the ranks, applies POST_NORM, which only some model families have, and adds
// the result to the residual stream.
void Decoder::add_branch(const NormWeights& post_norm, int64_t rows) {
    const int64_t width = config_.width;
    if (ranks_ != nullptr) ranks_->sum({branch_.data(), static_cast<size_t>(rows * width)});
    if (post_norm.is_present) math_.norm(post_norm, branch_.data(), width, branch_.data(), rows);
    if (config_.residual_scale != 1) {
        const auto scale = static_cast<float>(config_.residual_scale);
        for (int64_t i = 0; i < rows * width; ++i) branch_[i] *= scale;
    }
    math_.kernels().add(hidden_.data(), branch_.data(), hidden_.data(), rows * width);
}

std::span<float> Decoder::logits(const Batch& batch) {
    const int64_t width = config_.width, classes = weights_.vocabulary.numel;
    int64_t rows = 0;
    for (size_t i = 0; i < batch.rows.size(); ++i)
        if (batch.rows[i].wants_logits)
            math_.norm(weights_.norm, hidden_.data() + static_cast<int64_t>(i) * width, width,
                       normed_.data() + rows++ * width, 1);
    if (rows == 0) return {};
    grow(logits_, rows * classes);
    const RowMath::Use head{&weights_.head, logits_.data()};
    if (stream_) stream_->ask(0);
    math_.multiply({&head, 1}, normed_.data(), width, rows);
    if (config_.logit_scale != 1) {
        const auto scale = static_cast<float>(config_.logit_scale);
        for (int64_t i = 0; i < rows * classes; ++i) logits_[i] *= scale;
    }
    if (config_.logit_cap > 0) {
        const auto cap = static_cast<float>(config_.logit_cap);
        for (int64_t i = 0; i < rows * classes; ++i) logits_[i] = std::tanh(logits_[i] / cap) * cap;
    }
    return {logits_.data(), static_cast<size_t>(rows * classes)};
}

std::span<float> LoneRunner::run(const Batch& batch) {
    decoder_.embed(batch);
    decoder_.run_layers(batch);
    return decoder_.logits(batch);
}

}  // namespace dslaunch::decoder

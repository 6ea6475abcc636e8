#include "decoder/decode/decoder.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/flat_optimizer.h"

namespace dslaunch::decoder {

using storage::ActivationKind;
using storage::HeadNormKind;
using storage::NormKind;
using storage::TransformerConfig;

namespace {

// Rows below which a loop over them takes less time than to wake the team.
constexpr int64_t kRowsForTeam = 16;
constexpr int64_t kRowsOfChunk = 4;

void grow(std::vector<float>& buffer, int64_t numel) {
    if (std::ssize(buffer) < numel) buffer.resize(static_cast<size_t>(numel));
}

bool is_empty(const LinearWeights& layer) {
    return layer.weight.matrix.data == nullptr;
}

int64_t outputs_of(const LinearWeights& layer) {
    return layer.weight.matrix.shape.out;
}

// kernels::Gate has the activations in the same order.
static_assert(static_cast<int>(ActivationKind::kReluSquared) ==
              static_cast<int>(kernels::Gate::kReluSquared));

}  // namespace

WeightStream::WeightStream(const DecoderWeights& weights) {
    const auto add = [](Parts& parts, const LinearWeights& linear) {
        const OwnedMatrix& owned = linear.weight;
        if (owned.file == nullptr || owned.matrix.data == nullptr) return;
        parts.emplace_back(owned.matrix.data,
                           static_cast<size_t>(kernels::matrix_bytes(owned.matrix.shape)));
    };
    const auto add_mlp = [&](Parts& parts, const MlpWeights& mlp) {
        for (const LinearWeights* linear : {&mlp.gate, &mlp.up, &mlp.down}) add(parts, *linear);
    };
    for (const LayerWeights& layer : weights.layers) {
        Parts& parts = layers_.emplace_back();
        for (const LinearWeights* linear :
             {&layer.query, &layer.key, &layer.value, &layer.fused, &layer.output})
            add(parts, *linear);
        add_mlp(parts, layer.mlp);
        add_mlp(parts, layer.shared_expert);
        // The experts that a step reads are not known before.
    }
    add(layers_.emplace_back(), weights.head);
}

// If the system refuses, only time is lost: the weights are read when they are touched.
void WeightStream::ask(size_t layer) const {
    static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    for (const std::span<const std::byte> part : layers_[layer]) {
        const auto begin = reinterpret_cast<uintptr_t>(part.data());
        const uintptr_t first = begin / page * page;
        ::madvise(reinterpret_cast<void*>(first), begin + part.size() - first, MADV_WILLNEED);
    }
}

Decoder::Decoder(const TransformerConfig& config, DecoderWeights weights, DecoderOptions options,
                 kernels::ThreadTeam& team, RankSum* ranks)
    : config_(config),
      weights_(std::move(weights)),
      options_(std::move(options)),
      team_(team),
      ranks_(ranks) {
    DSL_CHECK(options_.rows_max > 0 && options_.pages > 0, "decoder options");
    const int64_t page = page_bytes(config, weights_.part, options_.cache);
    half_page_bytes_ = page / (2 * std::ssize(weights_.layers));
    cache_ = PageMemory(page * options_.pages, "the cache of keys and values");
    if (options_.streams) stream_.emplace(weights_);
}

int64_t Decoder::page_bytes(const TransformerConfig& config, const DecoderPart& part, DType cache) {
    return (part.last_layer - part.first_layer) * 2 * kPagePositions *
           (config.key_heads / part.tensor_ranks) * config.head_width * dtype_bytes(cache);
}

std::byte* Decoder::page(size_t layer, bool values, int32_t page) const {
    const int64_t index =
        (static_cast<int64_t>(layer) * options_.pages + page) * 2 + (values ? 1 : 0);
    return const_cast<std::byte*>(cache_.bytes().data()) + index * half_page_bytes_;
}

void Decoder::for_rows(int64_t rows, const std::function<void(int64_t row)>& work) {
    if (rows < kRowsForTeam) {
        for (int64_t row = 0; row < rows; ++row) work(row);
        return;
    }
    team_.for_chunks((rows + kRowsOfChunk - 1) / kRowsOfChunk, [&](int64_t chunk) {
        const int64_t begin = chunk * kRowsOfChunk;
        for (int64_t row = begin; row < std::min(begin + kRowsOfChunk, rows); ++row) work(row);
    });
}

void Decoder::norm_rows(const NormWeights& norm, const float* x, int64_t width, float* out,
                        int64_t rows) {
    const auto epsilon = static_cast<float>(config_.norm_epsilon);
    if (!norm.present) {
        std::copy_n(x, rows * width, out);
        return;
    }
    const int64_t weight_rows = std::max<int64_t>(std::ssize(norm.weight) / width, 1);
    const float* bias = norm.bias.empty() ? nullptr : norm.bias.data();
    for_rows(rows, [&](int64_t row) {
        const float* from = x + row * width;
        float* to = out + row * width;
        const float* weight =
            norm.weight.empty() ? nullptr : norm.weight.data() + row % weight_rows * width;
        if (config_.norm == NormKind::kLayer || config_.norm == NormKind::kLayerOfOne) {
            kernels_.layer_norm(from, width, {weight, bias, epsilon, false}, to);
        } else {
            const bool one_plus = config_.norm == NormKind::kRmsOfOne;
            kernels_.rms_norm(from, width, {weight, nullptr, epsilon, one_plus}, to);
        }
    });
}

void Decoder::multiply(std::span<const Use> uses, const float* x, int64_t in, int64_t rows) {
    std::vector<kernels::Product> products;
    bool has_adapters = false;
    for (const Use& use : uses) {
        const LinearWeights& layer = *use.layer;
        products.push_back({layer.weight.matrix, use.y, outputs_of(layer),
                            layer.bias.empty() ? nullptr : layer.bias.data(), false});
        has_adapters = has_adapters || layer.adapter.has_value();
    }
    const kernels::ActivationRows x_rows{x, rows, in, in};
    // A file may have matrices of several types; activations ready for bf16 serve all of them.
    const kernels::Product* first = &products.front();
    for (const kernels::Product& product : products)
        if (product.matrix.shape.form == kernels::MatrixForm::kBf16) first = &product;
    activations_.assign(x_rows, first->matrix.shape, team_);
    kernels::multiply(products, activations_, team_);
    if (!has_adapters) return;
    for (const Use& use : uses) {
        if (!use.layer->adapter) continue;
        const LowRank& change = *use.layer->adapter;
        const int64_t rank = change.a.matrix.shape.out;
        grow(adapter_, rows * rank);
        const kernels::Product down{change.a.matrix, adapter_.data(), rank, nullptr, false};
        activations_.assign(x_rows, change.a.matrix.shape, team_);
        kernels::multiply({&down, 1}, activations_, team_);
        const kernels::Product up{change.b.matrix, use.y, outputs_of(*use.layer), nullptr, true};
        activations_.assign({adapter_.data(), rows, rank, rank}, change.b.matrix.shape, team_);
        kernels::multiply({&up, 1}, activations_, team_);
    }
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
    for_rows(std::ssize(batch.rows), [&](int64_t i) {
        const BatchRow& row = batch.rows[static_cast<size_t>(i)];
        float* to = hidden + i * width;
        row_of(weights_.embedding, row.token, to);
        if (scale != 1)
            for (int64_t k = 0; k < width; ++k) to[k] *= scale;
        if (!config_.learned_positions) return;
        float* position = normed_.data() + i * width;
        row_of(weights_.positions, row.position, position);
        kernels_.add(to, position, to, width);
    });
}

// Computes in the order of transformers' operators: rounds the angle to fp32, then its sine.
void Decoder::turn(const Batch& batch, const std::vector<double>& frequencies,
                   const std::vector<double>& late, double magnitude, std::vector<float>& cos,
                   std::vector<float>& sin) const {
    const int64_t pairs = std::ssize(frequencies), rows = std::ssize(batch.rows);
    const storage::Rope& rope = config_.rope;
    std::vector<double> grown;  // of the rows with the length GROWN_LENGTH
    int64_t grown_length = 0;
    grow(cos, rows * pairs);
    grow(sin, rows * pairs);
    for (int64_t i = 0; i < rows; ++i) {
        const BatchRow& row = batch.rows[static_cast<size_t>(i)];
        const bool is_late = row.length > rope.original_context;
        const std::vector<double>* turns_of_row = is_late && !late.empty() ? &late : &frequencies;
        if (is_late && rope.kind == storage::RopeKind::kDynamic) {
            if (row.length != grown_length) grown = storage::dynamic_frequencies(rope, row.length);
            grown_length = row.length;
            turns_of_row = &grown;
        }
        for (int64_t p = 0; p < pairs; ++p) {
            const auto turns = static_cast<float>((*turns_of_row)[p]);
            const float angle = static_cast<float>(row.position) * turns;
            cos[i * pairs + p] = std::cos(angle) * static_cast<float>(magnitude);
            sin[i * pairs + p] = std::sin(angle) * static_cast<float>(magnitude);
        }
    }
}

void Decoder::turn_rows(const Batch& batch) {
    if (!config_.has_rotary()) return;
    const storage::RotaryFrequencies& frequencies = options_.frequencies;
    turn(batch, frequencies.all, frequencies.late, config_.rope.magnitude, rows_.cos, rows_.sin);
    if (!frequencies.window.empty())
        turn(batch, frequencies.window, {}, config_.window_rope.magnitude, rows_.window_cos,
             rows_.window_sin);
}

void Decoder::run_layers(const Batch& batch) {
    const int64_t rows = std::ssize(batch.rows);
    DSL_CHECK(rows > 0 && rows <= options_.rows_max, "a batch of {} rows", rows);
    turn_rows(batch);
    grow(normed_, rows * config_.width);
    grow(branch_, rows * config_.width);
    if (config_.parallel) grow(mlp_branch_, rows * config_.width);
    for (size_t index = 0; index < weights_.layers.size(); ++index) {
        const LayerWeights& layer = weights_.layers[index];
        if (stream_) stream_->ask(index + 1);
        if (config_.parallel) {
            // Both branches read the same residual stream.
            norm_rows(config_.shared_norm ? layer.attention_norm : layer.mlp_norm, hidden_.data(),
                      config_.width, normed_.data(), rows);
            mlp(layer, rows);
            std::swap(branch_, mlp_branch_);
            if (!config_.shared_norm)
                norm_rows(layer.attention_norm, hidden_.data(), config_.width, normed_.data(),
                          rows);
            attention(batch, layer, index);
            kernels_.add(mlp_branch_.data(), branch_.data(), branch_.data(), rows * config_.width);
            add_branch({}, rows);
            continue;
        }
        norm_rows(layer.attention_norm, hidden_.data(), config_.width, normed_.data(), rows);
        attention(batch, layer, index);
        add_branch(layer.attention_post_norm, rows);
        norm_rows(layer.mlp_norm, hidden_.data(), config_.width, normed_.data(), rows);
        mlp(layer, rows);
        add_branch(layer.mlp_post_norm, rows);
    }
}

// Adds the branch, summed over the ranks and normed if the family has a norm there, to the residual
// stream.
void Decoder::add_branch(const NormWeights& post_norm, int64_t rows) {
    const int64_t width = config_.width;
    if (ranks_ != nullptr) ranks_->sum({branch_.data(), static_cast<size_t>(rows * width)});
    if (post_norm.present) norm_rows(post_norm, branch_.data(), width, branch_.data(), rows);
    if (config_.residual_scale != 1) {
        const auto scale = static_cast<float>(config_.residual_scale);
        for (int64_t i = 0; i < rows * width; ++i) branch_[i] *= scale;
    }
    kernels_.add(hidden_.data(), branch_.data(), hidden_.data(), rows * width);
}

// normed_ -> branch_
void Decoder::attention(const Batch& batch, const LayerWeights& layer, size_t index) {
    const int64_t rows = std::ssize(batch.rows);
    project(layer, rows);
    norm_heads(layer, rows);
    turn_heads(layer, rows);
    store(batch, index);
    attend(batch, layer, index);
    const Use output{&layer.output, branch_.data()};
    multiply({&output, 1}, mixed_.data(), weights_.heads * config_.head_width, rows);
}

void Decoder::project(const LayerWeights& layer, int64_t rows) {
    const int64_t head = config_.head_width;
    const int64_t queries = weights_.heads * head, keys = weights_.key_heads * head;
    grow(query_, rows * queries);
    grow(key_, rows * keys);
    grow(value_, rows * keys);
    if (is_empty(layer.fused)) {
        const Use uses[] = {{&layer.query, query_.data()},
                            {&layer.key, key_.data()},
                            {&layer.value, value_.data()}};
        return multiply(uses, normed_.data(), config_.width, rows);
    }
    grow(fused_, rows * (queries + 2 * keys));
    const Use fused{&layer.fused, fused_.data()};
    multiply({&fused, 1}, normed_.data(), config_.width, rows);
    // The queries that share a key, the key and its value, then the same for the next key.
    const int64_t shared = queries / weights_.key_heads;
    for (int64_t i = 0; i < rows * weights_.key_heads; ++i) {
        const float* from = fused_.data() + i * (shared + 2 * head);
        std::copy_n(from, shared, query_.data() + i * shared);
        std::copy_n(from + shared, head, key_.data() + i * head);
        std::copy_n(from + shared + head, head, value_.data() + i * head);
    }
}

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

// Computes an RMS norm over the heads of all ranks.
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

void Decoder::turn_heads(const LayerWeights& layer, int64_t rows) {
    const int64_t head = config_.head_width, heads = weights_.heads, keys = weights_.key_heads;
    if (!layer.turns) return;
    const bool in_window = layer.window && !options_.frequencies.window.empty();
    const std::vector<float>& cos = in_window ? rows_.window_cos : rows_.cos;
    const std::vector<float>& sin = in_window ? rows_.window_sin : rows_.sin;
    const storage::RotaryFrequencies& frequencies = options_.frequencies;
    const int64_t pairs = std::ssize(in_window ? frequencies.window : frequencies.all);
    const auto rotate = config_.turns_neighbours ? kernels_.rotate_pairs : kernels_.rotate_halves;
    DSL_CHECK(2 * pairs <= head, "{} pairs of a head of {} elements", pairs, head);
    for_rows(rows, [&](int64_t row) {
        kernels::Rotation rotation{heads, head, cos.data() + row * pairs, sin.data() + row * pairs,
                                   pairs};
        rotate(query_.data() + row * heads * head, rotation);
        rotation.heads = keys;
        rotate(key_.data() + row * keys * head, rotation);
    });
}

void Decoder::store(const Batch& batch, size_t layer) {
    const int64_t numel = weights_.key_heads * config_.head_width;
    const int64_t bytes = numel * dtype_bytes(options_.cache);
    for_rows(std::ssize(batch.rows), [&](int64_t i) {
        const BatchRow& row = batch.rows[static_cast<size_t>(i)];
        const std::vector<int32_t>& pages = batch.sequences[row.sequence].pages;
        const int32_t page_index = pages[static_cast<size_t>(row.position / kPagePositions)];
        const int64_t offset = row.position % kPagePositions * bytes;
        from_fp32(key_.data() + i * numel, options_.cache, numel,
                  page(layer, false, page_index) + offset);
        from_fp32(value_.data() + i * numel, options_.cache, numel,
                  page(layer, true, page_index) + offset);
    });
}

// query_ and the cache -> mixed_
void Decoder::attend(const Batch& batch, const LayerWeights& layer, size_t index) {
    const int64_t rows = std::ssize(batch.rows);
    const int64_t numel = weights_.heads * config_.head_width;
    grow(mixed_, rows * numel);
    key_pages_.clear();
    value_pages_.clear();
    std::vector<size_t> first_page;
    for (const BatchSequence& sequence : batch.sequences) {
        first_page.push_back(key_pages_.size());
        for (const int32_t number : sequence.pages) {
            key_pages_.push_back(page(index, false, number));
            value_pages_.push_back(page(index, true, number));
        }
    }
    attend_rows_.clear();
    for (int64_t i = 0; i < rows; ++i) {
        const BatchRow& row = batch.rows[static_cast<size_t>(i)];
        const size_t first = first_page[static_cast<size_t>(row.sequence)];
        const int64_t length = row.position + 1;
        attend_rows_.push_back({query_.data() + i * numel, mixed_.data() + i * numel,
                                key_pages_.data() + first, value_pages_.data() + first, length,
                                layer.window ? std::max<int64_t>(length - config_.window, 0) : 0});
    }
    const kernels::AttendShape shape{weights_.heads,
                                     weights_.key_heads,
                                     config_.head_width,
                                     kPagePositions,
                                     options_.cache,
                                     static_cast<float>(config_.scale),
                                     static_cast<float>(config_.score_cap)};
    kernels::attend(shape, attend_rows_, scratch_, team_);
}

// normed_ -> branch_
void Decoder::mlp(const LayerWeights& layer, int64_t rows) {
    if (!layer.experts.empty()) return experts(layer, rows);
    dense_mlp(layer.mlp, normed_.data(), rows, branch_.data());
}

void Decoder::dense_mlp(const MlpWeights& mlp, const float* x, int64_t rows, float* y) {
    const int64_t width = outputs_of(mlp.up);
    grow(gate_, rows * width);
    grow(up_, rows * width);
    const bool gated = !is_empty(mlp.gate);
    const auto activate = kernels_.gate[static_cast<size_t>(config_.activation)];
    const Use uses[] = {{&mlp.up, up_.data()}, {&mlp.gate, gate_.data()}};
    multiply({uses, gated ? 2U : 1U}, x, config_.width, rows);
    for_rows(rows, [&](int64_t row) {
        float* up = up_.data() + row * width;
        activate(gated ? gate_.data() + row * width : up, gated ? up : nullptr, up, width);
    });
    const Use down{&mlp.down, y};
    multiply({&down, 1}, up_.data(), width, rows);
}

// Lets each expert compute the rows that chose it; adds outputs with the router's weights.
void Decoder::experts(const LayerWeights& layer, int64_t rows) {
    const int64_t width = config_.width, count = config_.experts;
    std::vector<float> shares(static_cast<size_t>(rows * count));
    const Use router{&layer.router, shares.data()};
    multiply({&router, 1}, normed_.data(), width, rows);
    struct Choice {
        int64_t row = 0;
        float weight = 0;
    };
    std::vector<std::vector<Choice>> chosen(static_cast<size_t>(count));
    std::vector<int64_t> order(static_cast<size_t>(count));
    for (int64_t row = 0; row < rows; ++row) {
        float* share = shares.data() + row * count;
        kernels_.softmax(share, count, share);
        for (int64_t e = 0; e < count; ++e) order[e] = e;
        const auto best = order.begin() + config_.experts_chosen;
        std::partial_sort(order.begin(), best, order.end(), [&](int64_t a, int64_t b) {
            return share[a] > share[b] || (share[a] == share[b] && a < b);
        });
        float sum = 0;
        for (auto e = order.begin(); e != best; ++e) sum += share[*e];
        for (auto e = order.begin(); e != best; ++e)
            chosen[*e].push_back(
                {row, config_.expert_weights_sum_to_one ? share[*e] / sum : share[*e]});
    }
    std::fill_n(branch_.begin(), rows * width, 0.0F);
    std::vector<float> from, to;
    for (size_t e = 0; e < chosen.size(); ++e) {
        const std::vector<Choice>& own = chosen[e];
        if (own.empty()) continue;
        const int64_t own_rows = std::ssize(own);
        grow(from, own_rows * width);
        grow(to, own_rows * width);
        for (int64_t i = 0; i < own_rows; ++i)
            std::copy_n(normed_.data() + own[i].row * width, width, from.data() + i * width);
        dense_mlp(layer.experts[e], from.data(), own_rows, to.data());
        for (int64_t i = 0; i < own_rows; ++i) {
            float* sum = branch_.data() + own[i].row * width;
            for (int64_t k = 0; k < width; ++k) sum[k] += own[i].weight * to[i * width + k];
        }
    }
    if (config_.shared_expert_width > 0) add_shared_expert(layer, rows);
}

// Adds the shared expert of every row, times a sigmoid of the row if it has a gate.
void Decoder::add_shared_expert(const LayerWeights& layer, int64_t rows) {
    const int64_t width = config_.width;
    std::vector<float> factors(static_cast<size_t>(rows), 1.0F);
    if (!is_empty(layer.shared_expert_gate)) {
        const Use gate{&layer.shared_expert_gate, factors.data()};
        multiply({&gate, 1}, normed_.data(), width, rows);
        for (float& factor : factors) factor = 1.0F / (1.0F + std::exp(-factor));
    }
    std::vector<float> made(static_cast<size_t>(rows * width));
    dense_mlp(layer.shared_expert, normed_.data(), rows, made.data());
    for (int64_t i = 0; i < rows * width; ++i) branch_[i] += factors[i / width] * made[i];
}

std::span<float> Decoder::logits(const Batch& batch) {
    const int64_t width = config_.width, classes = weights_.vocabulary.numel;
    int64_t rows = 0;
    for (size_t i = 0; i < batch.rows.size(); ++i)
        if (batch.rows[i].wants_logits)
            norm_rows(weights_.norm, hidden_.data() + static_cast<int64_t>(i) * width, width,
                      normed_.data() + rows++ * width, 1);
    if (rows == 0) return {};
    grow(logits_, rows * classes);
    const Use head{&weights_.head, logits_.data()};
    if (stream_) stream_->ask(0);
    multiply({&head, 1}, normed_.data(), width, rows);
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

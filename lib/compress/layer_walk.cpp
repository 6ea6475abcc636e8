#include "compress/layer_walk.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace dslaunch::compress {
namespace {

using decoder::Batch;
using decoder::LinearWeights;

// Texts are put together into batches of about this many rows.
constexpr int64_t kBatchRows = 2048;

void add(std::initializer_list<const LinearWeights*> layers, std::vector<LayersOfInput>& inputs) {
    LayersOfInput own;
    for (const LinearWeights* const layer : layers)
        if (!is_empty(*layer)) own.push_back(layer);
    if (!own.empty()) inputs.push_back(std::move(own));
}

void add_mlp(const decoder::MlpWeights& mlp, std::vector<LayersOfInput>& inputs) {
    add({&mlp.gate, &mlp.up}, inputs);
    add({&mlp.down}, inputs);
}

void add_text(const std::vector<int32_t>& text, Batch& batch, int64_t& pages) {
    const auto sequence = static_cast<int32_t>(batch.sequences.size());
    decoder::BatchSequence own;
    for (int64_t i = 0; i < decoder::pages_for(std::ssize(text)); ++i)
        own.pages.push_back(static_cast<int32_t>(pages++));
    batch.sequences.push_back(std::move(own));
    const auto length = static_cast<int32_t>(text.size());
    for (int32_t i = 0; i < length; ++i)
        batch.rows.push_back({text[static_cast<size_t>(i)], i, sequence, length, false});
}

}  // namespace

std::vector<LayersOfInput> rounded_layers(const decoder::LayerWeights& layer) {
    std::vector<LayersOfInput> inputs;
    add({&layer.query, &layer.key, &layer.value, &layer.fused}, inputs);
    add({&layer.output}, inputs);
    add_mlp(layer.mlp, inputs);
    for (const decoder::MlpWeights& expert : layer.experts) add_mlp(expert, inputs);
    add_mlp(layer.shared_expert, inputs);
    return inputs;
}

LayerWalk::LayerWalk(const storage::TransformerConfig& config, decoder::WeightSource& source,
                     storage::RotaryFrequencies frequencies,
                     const std::vector<std::vector<int32_t>>& texts, kernels::ThreadTeam& team)
    : config_(config), source_(source), frequencies_(std::move(frequencies)), team_(team) {
    int64_t pages = 0;
    for (const std::vector<int32_t>& text : texts) {
        if (text.empty()) continue;
        const bool is_full =
            !batches_.empty() && std::ssize(batches_.back().rows) + std::ssize(text) > kBatchRows;
        if (batches_.empty() || is_full) {
            batches_.emplace_back();
            pages = 0;
        }
        add_text(text, batches_.back(), pages);
        size_.rows_max = std::max(size_.rows_max, std::ssize(batches_.back().rows));
        size_.pages = std::max(size_.pages, pages);
        size_.tokens += std::ssize(text);
        size_.text_max = std::max(size_.text_max, std::ssize(text));
    }
}

decoder::Decoder LayerWalk::open_layer() {
    decoder::DecoderOptions options;
    options.rows_max = size_.rows_max;
    options.pages = size_.pages;
    options.frequencies = frequencies_;
    return {config_, load_decoder(config_, {layer_, layer_ + 1, 0, 1}, source_), options, team_,
            nullptr};
}

// Looks up the rows of the texts, if no layer has run yet.
void LayerWalk::embed(decoder::Decoder& decoder) {
    if (!hidden_.empty()) return;
    hidden_.resize(static_cast<size_t>(size_.tokens * config_.width));
    float* kept = hidden_.data();
    for (const Batch& batch : batches_) {
        decoder.embed(batch);
        const std::span<const float> rows = decoder.hidden(batch);
        kept = std::copy_n(rows.data(), std::ssize(batch.rows) * config_.width, kept);
    }
}

std::span<const float> LayerWalk::hidden() {
    if (hidden_.empty()) {
        decoder::Decoder decoder = open_layer();
        embed(decoder);
    }
    return hidden_;
}

void LayerWalk::run(decoder::Decoder& decoder, bool keeps) {
    embed(decoder);
    int64_t begin = 0;
    for (const Batch& batch : batches_) {
        const int64_t numel = std::ssize(batch.rows) * config_.width;
        float* const kept = hidden_.data() + begin * config_.width;
        std::copy_n(kept, numel, decoder.hidden(batch).data());
        decoder.run_layers(batch);
        if (keeps) std::copy_n(decoder.hidden(batch).data(), numel, kept);
        begin += std::ssize(batch.rows);
    }
}

void LayerWalk::observe(const decoder::RowMath::Observer& observer) {
    decoder::Decoder decoder = open_layer();
    decoder.observe(observer);
    run(decoder, false);
}

void LayerWalk::observe_and_advance(const decoder::RowMath::Observer& observer) {
    decoder::Decoder decoder = open_layer();
    decoder.observe(observer);
    run(decoder, true);
    ++layer_;
}

void LayerWalk::advance() {
    decoder::Decoder decoder = open_layer();
    run(decoder, true);
    ++layer_;
}

CalibrationWalks::CalibrationWalks(const storage::TransformerConfig& config,
                                   decoder::WeightSource& source,
                                   const storage::RotaryFrequencies& frequencies,
                                   const std::vector<std::vector<int32_t>>& texts, bool descends,
                                   kernels::ThreadTeam& team)
    : texts_(texts), width_(config.width), team_(team) {
    if (!texts.empty()) rounded_.emplace(config, source, frequencies, texts, team);
    if (descends) exact_.emplace(config, source, frequencies, texts, team);
}

WalkSize CalibrationWalks::size() const {
    WalkSize size = rounded_ ? rounded_->size() : WalkSize();
    size.descends = descends();
    return size;
}

void CalibrationWalks::pass_exact() {
    if (exact_) exact_->advance();
}

LayerMoments CalibrationWalks::observe(const std::set<std::string>& names) {
    LayerMoments moments;
    if (!rounded_) return moments;
    rounded_->observe(
        [&](std::span<const decoder::RowMath::Use> uses, const float* x, int64_t in, int64_t rows) {
            std::shared_ptr<InputMoments> own;
            for (const decoder::RowMath::Use& use : uses) {
                if (!names.contains(use.layer->name)) continue;
                std::shared_ptr<InputMoments>& kept = moments[use.layer->name];
                if (own == nullptr) own = kept ? kept : std::make_shared<InputMoments>(in);
                kept = own;
            }
            if (own != nullptr) own->add(x, rows, team_);
        });
    return moments;
}

std::vector<LayerText> CalibrationWalks::texts_of_layer() {
    const std::span<const float> inputs = rounded_->hidden();
    const std::span<const float> outputs = exact_->hidden();
    std::vector<LayerText> texts;
    size_t begin = 0;
    for (const std::vector<int32_t>& text : texts_) {
        if (text.empty()) continue;
        const size_t numel = text.size() * static_cast<size_t>(width_);
        texts.push_back(
            {inputs.subspan(begin, numel), outputs.subspan(begin, numel), std::ssize(text)});
        begin += numel;
    }
    return texts;
}

}  // namespace dslaunch::compress

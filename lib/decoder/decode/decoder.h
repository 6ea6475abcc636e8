// A decoder that computes batches of rows. The rows pass through the layers that this rank holds,
// and the keys and values of earlier positions come from a paged cache. Activations are always
// fp32. The logits of a row depend only on the row and its own text, not on the other rows of the
// batch, so a text gets the same result alone and among others. Data path: batch -> [here] ->
// logits, or hidden rows for the next stage. One thread calls; the team's threads compute.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/kinds/dtype.h"
#include "decoder/decode/batch.h"
#include "decoder/decode/layer_attention.h"
#include "decoder/decode/layer_mlp.h"
#include "decoder/decode/rank_sum.h"
#include "decoder/decode/row_math.h"
#include "decoder/decode/weight_stream.h"
#include "decoder/weights/decoder_weights.h"
#include "kernels/thread_team.h"

namespace dslaunch::decoder {

// The options of a decoder.
struct DecoderOptions {
    int64_t rows_max = 512;     // largest number of rows in a batch
    int64_t pages = 0;          // pages of the cache
    DType cache = DType::kF32;  // type of keys and values: kF32, kBF16 or kF16
    bool streams = false;       // weights do not fit in memory (WeightStream)
    storage::RotaryFrequencies frequencies;
};

// This rank's part of a decoder, with its weights and its cache.
class Decoder {
  public:
    // CONFIG, TEAM and RANKS must outlive this object. RANKS is null if there is only one rank.
    // Throws Error{kSetup} if there is no memory for the cache.
    Decoder(const storage::TransformerConfig& config, DecoderWeights weights,
            DecoderOptions options, kernels::ThreadTeam& team, RankSum* ranks);
    Decoder(const Decoder&) = delete;
    Decoder& operator=(const Decoder&) = delete;

    // Return the constructor's arguments.
    [[nodiscard]] const storage::TransformerConfig& config() const { return config_; }
    [[nodiscard]] const DecoderOptions& options() const { return options_; }
    [[nodiscard]] const DecoderWeights& weights() const { return weights_; }
    // Returns the number of bytes that a page of the cache takes on this rank.
    [[nodiscard]] static int64_t page_bytes(const storage::TransformerConfig& config,
                                            const DecoderPart& part, DType cache);

    // Returns the hidden rows of BATCH. SHAPE: [rows, width], valid until the next batch. On the
    // first stage, embed() fills them. On any other stage, the caller writes the previous stage's
    // rows into them before it calls run_layers().
    [[nodiscard]] std::span<float> hidden(const Batch& batch);
    // Looks up the tokens of BATCH. REQUIRES: the first stage.
    void embed(const Batch& batch);
    // Passes the hidden rows through this rank's layers, in place. Throws Error{kPeerLost}.
    void run_layers(const Batch& batch);
    // Returns the logits of the rows that want them, for this rank's share of the vocabulary.
    // SHAPE: [logits_rows, weights().vocabulary.numel]. REQUIRES: the last stage.
    [[nodiscard]] std::span<float> logits(const Batch& batch);

    // Shows OBSERVER the inputs of all layers from now on.
    void observe(RowMath::Observer observer) { math_.observe(std::move(observer)); }

  private:
    void add_branch(const NormWeights& post_norm, int64_t rows);

    const storage::TransformerConfig& config_;
    DecoderWeights weights_;
    DecoderOptions options_;
    RankSum* ranks_;
    std::optional<WeightStream> stream_;  // present if weights do not fit in memory
    RowMath math_;
    LayerAttention attention_;
    LayerMlp mlp_;
    // Buffers [rows, ...] fp32.
    std::vector<float> hidden_, normed_, branch_, mlp_branch_, logits_;
};

// A BatchRunner for a decoder whose weights are all on this rank.
class LoneRunner final : public BatchRunner {
  public:
    // DECODER must outlive this object.
    explicit LoneRunner(Decoder& decoder) : decoder_(decoder) {}
    [[nodiscard]] int64_t vocabulary() const override { return decoder_.config().vocabulary; }
    [[nodiscard]] int64_t context() const override { return decoder_.config().context; }
    [[nodiscard]] int64_t pages() const override { return decoder_.options().pages; }
    [[nodiscard]] int64_t rows_max() const override { return decoder_.options().rows_max; }
    [[nodiscard]] std::span<float> run(const Batch& batch) override;

  private:
    Decoder& decoder_;
};

}  // namespace dslaunch::decoder

// A decoder as it computes: batches of rows go through the layers that this rank holds, keys and
// values of earlier positions come from a cache in pages. Activations are fp32 whatever the weights
// are. The logits of a row depend only on the row and its text, not on the rows beside it: a text
// is the same alone and among others. Data path: batch -> [here] -> logits, or hidden rows for the
// next stage. One thread calls; the team's threads compute.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/kinds/dtype.h"
#include "decoder/decode/batch.h"
#include "decoder/weights/decoder_weights.h"
#include "kernels/matrix/attend.h"
#include "kernels/matrix/matrix_tables.h"
#include "kernels/matrix/multiply.h"
#include "kernels/thread_team.h"

namespace dslaunch::decoder {

// The sums that the tensor ranks of a decoder make together in the middle of a layer; one rank
// alone has no such sum. ranks/group_sum.h makes them for a job's ranks. One thread.
class RankSum {
  public:
    virtual ~RankSum() = default;
    // Sums VALUES over the ranks, added in rank order: every rank gets the same bits. Every rank
    // calls with as many values. Blocks until all have come. Throws Error{kPeerLost}.
    virtual void sum(std::span<float> values) = 0;
};

// Weights that do not fit in memory: each step reads them from their file again, and asks the
// system for the next ones while it computes with others. Threads: one, but for other readers of
// the weights.
class WeightStream {
  public:
    // WEIGHTS must outlive this. Weights in memory of their own are left out.
    explicit WeightStream(const DecoderWeights& weights);

    // Starts reading the weights of layer LAYER, or of the output layer after the last one. Returns
    // before they are there.
    void ask(size_t layer) const;

  private:
    using Parts = std::vector<std::span<const std::byte>>;
    std::vector<Parts> layers_;  // of a file's mapping; the output layer is the last
};

struct DecoderOptions {
    int64_t rows_max = 512;     // of a batch
    int64_t pages = 0;          // of the cache
    DType cache = DType::kF32;  // kF32, kBF16 or kF16: of keys and values
    bool streams = false;       // weights do not fit in memory (WeightStream)
    storage::RotaryFrequencies frequencies;
};

class Decoder {
  public:
    // CONFIG, TEAM and RANKS (null: one rank alone) must outlive this. Throws Error{kSetup} when
    // there is no memory for the cache.
    Decoder(const storage::TransformerConfig& config, DecoderWeights weights,
            DecoderOptions options, kernels::ThreadTeam& team, RankSum* ranks);

    [[nodiscard]] const storage::TransformerConfig& config() const { return config_; }
    [[nodiscard]] const DecoderOptions& options() const { return options_; }
    [[nodiscard]] const DecoderWeights& weights() const { return weights_; }
    // Returns the bytes of the cache that a page takes on this rank.
    [[nodiscard]] static int64_t page_bytes(const storage::TransformerConfig& config,
                                            const DecoderPart& part, DType cache);

    // Returns the hidden rows of BATCH. SHAPE: [rows, width], valid until the next batch. The first
    // stage makes them; the others get them here from the stage before, before run_layers().
    [[nodiscard]] std::span<float> hidden(const Batch& batch);
    void embed(const Batch& batch);
    void run_layers(const Batch& batch);
    // Returns the last stage's logits: this rank's share, of the rows that want them. SHAPE:
    // [logits_rows, weights().vocabulary.numel].
    [[nodiscard]] std::span<float> logits(const Batch& batch);

  private:
    struct Rows {  // the rows of a batch, as attention and rotation need them
        std::vector<float> cos, sin, window_cos, window_sin;  // [rows, pairs]
    };
    void turn_rows(const Batch& batch);
    void turn(const Batch& batch, const std::vector<double>& frequencies,
              const std::vector<double>& late, double magnitude, std::vector<float>& cos,
              std::vector<float>& sin) const;
    void attention(const Batch& batch, const LayerWeights& layer, size_t index);
    void project(const LayerWeights& layer, int64_t rows);
    void norm_heads(const LayerWeights& layer, int64_t rows);
    void norm_whole(const LayerWeights& layer, int64_t rows);
    void turn_heads(const LayerWeights& layer, int64_t rows);
    void store(const Batch& batch, size_t layer);
    void attend(const Batch& batch, const LayerWeights& layer, size_t index);
    void mlp(const LayerWeights& layer, int64_t rows);
    void dense_mlp(const MlpWeights& mlp, const float* x, int64_t rows, float* y);
    void experts(const LayerWeights& layer, int64_t rows);
    void add_shared_expert(const LayerWeights& layer, int64_t rows);
    // Norms each row i by row (i modulo their number) of the norm's weights. Without a norm OUT is
    // a copy.
    void norm_rows(const NormWeights& norm, const float* x, int64_t width, float* out,
                   int64_t rows);
    void add_branch(const NormWeights& post_norm, int64_t rows);
    // y = x Wᵀ (+ bias) (+ the adapter's change), for each of several layers that read x.
    struct Use {
        const LinearWeights* layer = nullptr;
        float* y = nullptr;
    };
    void multiply(std::span<const Use> uses, const float* x, int64_t in, int64_t rows);
    // Calls WORK for each row, on the team if there are many.
    void for_rows(int64_t rows, const std::function<void(int64_t row)>& work);
    [[nodiscard]] std::byte* page(size_t layer, bool values, int32_t page) const;

    const storage::TransformerConfig& config_;
    DecoderWeights weights_;
    DecoderOptions options_;
    kernels::ThreadTeam& team_;
    const kernels::TokenKernels& kernels_ = kernels::token_kernels_of();
    RankSum* ranks_;
    PageMemory cache_;
    std::optional<WeightStream> stream_;  // present if weights do not fit in memory
    int64_t half_page_bytes_ = 0;         // keys, or values, of a layer and page

    Rows rows_;
    kernels::Activations activations_;
    kernels::AttendScratch scratch_;
    std::vector<kernels::AttendRow> attend_rows_;
    std::vector<const void*> key_pages_, value_pages_;
    std::vector<float> squares_;  // [rows, 2]: sums of the squares of queries and of keys
    // [rows_max, ...] fp32
    std::vector<float> hidden_, normed_, query_, key_, value_, fused_, mixed_, branch_, mlp_branch_,
        gate_, up_, adapter_, logits_;
};

// A decoder that one rank holds whole.
class LoneRunner final : public StepRunner {
  public:
    // DECODER must outlive this.
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

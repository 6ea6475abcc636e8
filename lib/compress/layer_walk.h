// Calibration texts on their way through a decoder, one layer at a time: the hidden rows of all
// texts are kept, and only one layer's weights and activations are in memory. Data path: texts and
// a folder's weights -> [here] -> input_moments.h, layer_descent.h. One thread calls; the team's
// threads compute.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "compress/input_moments.h"
#include "compress/layer_descent.h"
#include "compress/memory_plan.h"
#include "decoder/decode/batch.h"
#include "decoder/decode/decoder.h"
#include "decoder/weights/weight_source.h"
#include "kernels/thread_team.h"
#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::compress {

// Linear layers that have the same input.
using LayersOfInput = std::vector<const decoder::LinearWeights*>;

// Returns the linear layers of LAYER whose weights are rounded, grouped by their input. The router
// of the experts and the gate of a shared expert are not rounded, because they are small and their
// errors have large effects.
[[nodiscard]] std::vector<LayersOfInput> rounded_layers(const decoder::LayerWeights& layer);

// The calibration texts, which go through the model one layer at a time.
class LayerWalk {
  public:
    // TEXTS: the tokens of each text; no text is longer than the model's context. CONFIG, SOURCE
    // and TEAM must outlive this object.
    LayerWalk(const storage::TransformerConfig& config, decoder::WeightSource& source,
              storage::RotaryFrequencies frequencies,
              const std::vector<std::vector<int32_t>>& texts, kernels::ThreadTeam& team);

    // Returns the size of the texts. Their memory is allocated when the first layer runs.
    [[nodiscard]] const WalkSize& size() const { return size_; }

    // Returns the inputs of the next layer, [tokens, width]: the rows of the texts in their order.
    // Valid until the texts go through the layer. Throws the errors of load_decoder().
    [[nodiscard]] std::span<const float> hidden();

    // Runs the texts through the next layer and calls OBSERVER with the inputs of the layer's
    // matrices. Discards the outputs, so the same layer remains the next one. Throws the errors of
    // load_decoder().
    void observe(const decoder::RowMath::Observer& observer);
    // Has the effect of observe() followed by advance(), but runs the layer only once. Use it if
    // the layer's weights are not replaced after they are observed.
    void observe_and_advance(const decoder::RowMath::Observer& observer);
    // Takes the texts through the next layer, with the weights that SOURCE now has.
    void advance();

  private:
    [[nodiscard]] decoder::Decoder open_layer();
    void embed(decoder::Decoder& decoder);
    void run(decoder::Decoder& decoder, bool keeps);

    const storage::TransformerConfig& config_;
    decoder::WeightSource& source_;
    storage::RotaryFrequencies frequencies_;
    kernels::ThreadTeam& team_;
    std::vector<decoder::Batch> batches_;
    WalkSize size_;
    int64_t layer_ = 0;          // the next one
    std::vector<float> hidden_;  // [tokens, width], in the order of the batches
};

// The moments of layers' inputs, by the name of the layer's weight. Layers with the same input
// share their moments.
using LayerMoments = std::map<std::string, std::shared_ptr<InputMoments>>;

// The calibration texts on their way through the rounded model and, if a descent needs them, also
// through the exact model. The next layer first gets its exact weights, then its rounded ones. A
// task may have no texts; then nothing is walked.
class CalibrationWalks {
  public:
    // If DESCENDS is true, the texts also go through the exact model. CONFIG, SOURCE, TEXTS and
    // TEAM must outlive this object. REQUIRES: what LayerWalk does.
    CalibrationWalks(const storage::TransformerConfig& config, decoder::WeightSource& source,
                     const storage::RotaryFrequencies& frequencies,
                     const std::vector<std::vector<int32_t>>& texts, bool descends,
                     kernels::ThreadTeam& team);

    // Returns true if there are texts.
    [[nodiscard]] bool has_texts() const { return rounded_.has_value(); }
    // Returns true if the texts also go through the exact model.
    [[nodiscard]] bool descends() const { return exact_.has_value(); }
    // Returns the size of the texts; all zeros if there are none.
    [[nodiscard]] WalkSize size() const;

    // Takes the texts through the next layer of the exact model, if descends(). REQUIRES: the layer
    // has its exact weights in SOURCE.
    void pass_exact();
    // Returns the moments of the inputs of the weights with NAMES, which are in the next layer of
    // the rounded model; nothing if there are no texts. Throws the errors of load_decoder().
    [[nodiscard]] LayerMoments observe(const std::set<std::string>& names);
    // Returns the texts before the next layer of the rounded model, and after the same layer of the
    // exact model. They are valid until the texts go through a layer. REQUIRES: descends(), and
    // pass_exact() has passed this layer.
    [[nodiscard]] std::vector<LayerText> texts_of_layer();
    // Takes the texts through the next layer of the rounded model. REQUIRES: has_texts(), and the
    // layer has its rounded weights in SOURCE.
    void pass_rounded() { rounded_->advance(); }

  private:
    const std::vector<std::vector<int32_t>>& texts_;
    int64_t width_;
    kernels::ThreadTeam& team_;
    std::optional<LayerWalk> rounded_;
    std::optional<LayerWalk> exact_;
};

}  // namespace dslaunch::compress

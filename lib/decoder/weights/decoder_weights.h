// The weights of a decoder as one rank holds them: some neighbouring layers, and its share of each
// layer's heads, of the MLP's width and of the vocabulary. Data path: weight_source.h -> [here] ->
// decode/decoder.h. Read by any number of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/range.h"
#include "decoder/weights/weight_source.h"
#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::decoder {

// A rank's part of a decoder: layers [first_layer, last_layer), split among `tensor_ranks`.
struct DecoderPart {
    int64_t first_layer = 0;
    int64_t last_layer = 0;
    int tensor_rank = 0;
    int tensor_ranks = 1;
};

struct LinearWeights {
    OwnedMatrix weight;       // [outputs of the part, inputs of the part]
    std::vector<float> bias;  // [outputs]; empty: none, or another rank adds it
    std::optional<LowRank> adapter;
};

struct NormWeights {
    bool present = false;
    std::vector<float> weight;  // [width], or a row for each head; empty: 1
    std::vector<float> bias;    // [width]; empty: 0
};

struct MlpWeights {
    LinearWeights gate, up, down;  // no gate: its matrix is empty
};

struct LayerWeights {
    bool window = false;  // sees the last positions alone
    bool turns = true;    // queries and keys turn with their position
    NormWeights attention_norm, attention_post_norm, mlp_norm, mlp_post_norm;
    LinearWeights query, key, value;  // or all three in `fused`, key by key
    LinearWeights fused;
    NormWeights query_norm, key_norm;
    LinearWeights output;
    MlpWeights mlp;  // of a layer without experts
    LinearWeights router;
    std::vector<MlpWeights> experts;
    MlpWeights shared_expert;          // `up` is empty: there is none
    LinearWeights shared_expert_gate;  // [1, width]; empty: its factor is 1
};

struct DecoderWeights {
    DecoderPart part;
    int64_t heads = 0, key_heads = 0;  // of this rank
    Range vocabulary;                  // of this rank's rows of the output layer
    OwnedMatrix embedding;             // [vocabulary, width]; of the first stage
    OwnedMatrix positions;             // [context, width]; of the first stage, if learned
    std::vector<LayerWeights> layers;
    NormWeights norm;          // of the last stage
    LinearWeights head;        // [vocabulary.numel, width]; of the last stage
    int64_t bytes = 0;         // that a step of one row reads
    int64_t mapped_bytes = 0;  // of these, bytes in files and not in memory of its own
};

// Takes PART of the model that CONFIG describes from SOURCE. Throws Error{kInput} as SOURCE does,
// and for heads that attention has no room for; Error{kUsage} where heads of keys do not divide
// among the tensor ranks.
[[nodiscard]] DecoderWeights load_decoder(const storage::TransformerConfig& config,
                                          const DecoderPart& part, WeightSource& source);

// Returns the part of TENSOR_RANK x STAGE: whole layers, as even as they go.
[[nodiscard]] DecoderPart decoder_part(const storage::TransformerConfig& config, PartOf tensor,
                                       PartOf stage);

}  // namespace dslaunch::decoder

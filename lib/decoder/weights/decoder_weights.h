// The weights of a decoder that one rank holds: some consecutive layers, and the rank's share of
// their heads and MLP width and of the vocabulary. Data path: weight_source.h -> [here] ->
// decode/decoder.h. Any number of threads may read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/range.h"
#include "decoder/weights/weight_source.h"
#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::decoder {

// A rank's part of a decoder: layers [first_layer, last_layer), which are split among
// `tensor_ranks` ranks.
struct DecoderPart {
    int64_t first_layer = 0;
    int64_t last_layer = 0;
    int tensor_rank = 0;
    int tensor_ranks = 1;
};

// A linear layer.
struct LinearWeights {
    OwnedMatrix weight;       // [outputs of the part, inputs of the part]
    std::vector<float> bias;  // [outputs]; empty: none, or another rank adds it
    std::optional<LowRank> adapter;
    std::string name;  // name of the stored weight, also if this layer is a part of it
    storage::InputRounding inputs = storage::InputRounding::kNone;  // before the product
};

// A norm. If the model has no norm at this place, the rows stay as they are.
struct NormWeights {
    bool is_present = false;
    std::vector<float> weight;  // [width], or a row for each head; empty: 1
    std::vector<float> bias;    // [width]; empty: 0
};

// An MLP, or one expert.
struct MlpWeights {
    LinearWeights gate, up, down;  // if there is no gate, its matrix is empty
};

// The weights of one layer on this rank.
struct LayerWeights {
    bool has_window = false;  // attention sees only the last positions
    bool turns = true;        // rotary: queries and keys are rotated by their position
    NormWeights attention_norm, attention_post_norm, mlp_norm, mlp_post_norm;
    LinearWeights query, key, value;  // or all three in `fused`, for one key head after the other
    LinearWeights fused;
    NormWeights query_norm, key_norm;
    LinearWeights output;
    MlpWeights mlp;  // for a layer without experts
    LinearWeights router;
    std::vector<MlpWeights> experts;
    MlpWeights shared_expert;          // if `up` is empty, there is none
    LinearWeights shared_expert_gate;  // [1, width]; empty: the factor is 1
};

// All weights of a rank.
struct DecoderWeights {
    DecoderPart part;
    int64_t heads = 0, key_heads = 0;  // numbers of heads on this rank
    Range vocabulary;                  // the rows of the output layer on this rank
    OwnedMatrix embedding;             // [vocabulary, width]; on the first stage
    OwnedMatrix positions;             // [context, width]; on the first stage, if learned
    std::vector<LayerWeights> layers;
    NormWeights norm;          // on the last stage
    LinearWeights head;        // [vocabulary.numel, width]; on the last stage
    int64_t bytes = 0;         // bytes that a step with one row reads
    int64_t mapped_bytes = 0;  // the part of `bytes` that is mapped from files
};

// Loads PART of a model. CONFIG describes the model, and SOURCE provides its weights. Throws the
// errors of SOURCE. Throws Error{kInput} if heads are larger than attention supports, and
// Error{kUsage} if the key heads cannot be divided evenly among the tensor ranks.
[[nodiscard]] DecoderWeights load_decoder(const storage::TransformerConfig& config,
                                          const DecoderPart& part, WeightSource& source);

// Returns the part for a tensor rank and a stage. Stages consist of whole layers, divided as evenly
// as possible.
[[nodiscard]] DecoderPart decoder_part(const storage::TransformerConfig& config, PartOf tensor,
                                       PartOf stage);

}  // namespace dslaunch::decoder

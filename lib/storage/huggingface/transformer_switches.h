// A decoder as a Hugging Face folder has it: its sizes, the switches in which the families of
// transformers differ, and the names that its weights have. Data path: family_fields.h -> [here]
// -> graph/models/transformer.h and decoder/weights, which make decoders of it. Values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/kinds/dtype.h"
#include "storage/huggingface/rope_config.h"

namespace dslaunch::storage {

// The norm divides values by their size; then a factor follows.
enum class NormKind {
    kLayer,       // the distances from the mean; the weight
    kLayerOfOne,  // ... 1 + the weight, as Nemotron has it
    kRms,         // the numbers themselves; the weight
    kRmsOfOne,    // ... 1 + the weight, as Gemma has it
};

// Norms of queries and keys before they turn.
enum class HeadNormKind {
    kNone,
    kShared,  // of each head alone, with one weight for all of them
    kEach,    // ... with a row of the weight for each
    kList,    // ... with a module for each
    kWhole,   // of all heads together
};

enum class ActivationKind { kSilu, kGelu, kGeluTanh, kQuickGelu, kRelu, kReluSquared };

enum class ProjectionKind {
    kSeparate,    // queries, keys and values have a matrix each
    kFused,       // one matrix: all queries, then all keys, then all values
    kFusedByKey,  // one matrix: queries that share a key, the key, its value, then the next ones
};

struct TransformerLayer {
    bool window = false;   // sees only the last `window` positions
    bool experts = false;  // has a router and experts in the place of one MLP
    bool turns = true;     // queries and keys turn with their position
};

struct TransformerConfig {
    std::string architecture;  // "LlamaForCausalLM"
    std::string outer;         // of the model of texts and images that it is a part of; empty: none
    DType dtype = DType::kF32;  // of the weights, by config.json; their files have the last word
    int64_t vocabulary = 0;     // rows of the embedding
    int64_t width = 0;          // of the residual stream
    int64_t heads = 0;
    int64_t key_heads = 0;  // of keys and values, a divisor of heads
    int64_t head_width = 0;
    int64_t mlp_width = 0;
    int64_t context = 0;  // positions that the model was made for
    std::vector<TransformerLayer> layers;

    NormKind norm = NormKind::kRms;
    bool norm_weight = true;  // else the factor is 1
    bool norm_bias = false;   // of kLayer and kLayerOfOne
    double norm_epsilon = 1e-6;
    bool norms_before = true;   // a norm before attention and MLP
    bool norms_behind = false;  // a norm after attention and MLP, as Gemma 2 has them
    bool parallel = false;      // attention and MLP read the same residual stream
    bool shared_norm = false;   // ... by way of the same norm
    ActivationKind activation = ActivationKind::kSilu;
    bool gated = true;        // the MLP multiplies two projections
    bool gate_fused = false;  // ... which are one matrix
    bool mlp_bias = false;
    ProjectionKind projection = ProjectionKind::kSeparate;
    bool projection_bias = false;  // of queries, keys and values
    double projection_cap = 0;     // queries, keys and values are cut off there; 0: nowhere
    bool output_bias = false;      // of the projection after attention
    HeadNormKind head_norm = HeadNormKind::kNone;
    bool head_norm_bias = false;
    bool transposed = false;  // matrices of layers are [in, out], as in GPT-2
    double scale = 0;         // of the products of queries and keys
    double score_cap = 0;     // tanh bounds them by this; 0: they have no bound
    double logit_cap = 0;
    double logit_scale = 1;  // before they are capped
    double embedding_scale = 1;
    double residual_scale = 1;  // of a layer's addition to the residual stream
    int64_t padding = -1;       // the token whose row of the embedding gets no gradient; -1: none
    bool learned_positions = false;  // then no layer turns
    Rope rope;                       // of layers that see all positions
    Rope window_rope;                // of layers with a window
    bool turns_neighbours = false;   // element 2i turns with 2i + 1, else i with the second half's
    int64_t window = 0;
    bool tied = false;       // the output layer is the embedding
    bool says_tied = false;  // ... by config.json; the weights have the last word
    bool head_bias = false;  // of the output layer
    double embedding_dropout = 0, residual_dropout = 0, attention_dropout = 0;

    int64_t experts = 0;         // of a layer that has some
    int64_t experts_chosen = 0;  // for each token
    int64_t expert_width = 0;
    bool expert_weights_sum_to_one = false;
    int64_t shared_expert_width = 0;  // of one that computes every token; 0: there is none
    bool shared_expert_gate = false;  // ... times a sigmoid of the token

    // Names in the family's modules of what graph/models/transformer.torchscript calls $embed,
    // $query, …
    std::map<std::string, std::string> names;

    [[nodiscard]] bool has_window() const;
    [[nodiscard]] bool has_experts() const;
    [[nodiscard]] bool has_rotary() const;
};

}  // namespace dslaunch::storage

// A decoder as a Hugging Face folder describes it: its sizes, the switches in which the families of
// transformers differ, and the names of its weights. Data path: family_fields.h -> [here] ->
// graph/models/transformer.h and decoder/weights, which make decoders from it. Values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/kinds/dtype.h"
#include "storage/huggingface/rope_config.h"
#include "storage/quantized/quantization.h"

namespace dslaunch::storage {

// Kinds of norms. A norm divides values by their size and multiplies the result by a factor. The
// comment beside a kind names the values, then the factor.
enum class NormKind {
    kLayer,       // the distances from the mean; the weight
    kLayerOfOne,  // like kLayer, but 1 + the weight (Nemotron)
    kRms,         // the numbers themselves; the weight
    kRmsOfOne,    // like kRms, but 1 + the weight (Gemma)
};

// Norms of queries and keys. They are applied before queries and keys rotate with their position.
enum class HeadNormKind {
    kNone,
    kShared,  // of each head alone, with one weight for all of them
    kEach,    // of each head alone, with a row of the weight for each
    kList,    // of each head alone, with a module for each
    kWhole,   // of all heads together
};

// The activation function of an MLP.
enum class ActivationKind { kSilu, kGelu, kGeluTanh, kQuickGelu, kRelu, kReluSquared };

// The layout of the matrices that compute queries, keys and values.
enum class ProjectionKind {
    kSeparate,    // queries, keys and values have a matrix each
    kFused,       // one matrix: all queries, then all keys, then all values
    kFusedByKey,  // one matrix: for each key head, its queries, its key and its value
};

// The properties that may differ between the layers of a model.
struct TransformerLayer {
    bool has_window = false;   // attends only to the last `window` positions
    bool has_experts = false;  // has a router and experts instead of one MLP
    bool turns = true;         // queries and keys rotate with their position
};

// All sizes and properties of a decoder.
struct TransformerConfig {
    std::string architecture;   // "LlamaForCausalLM"
    std::string outer;          // model of texts and images that contains this one; or empty
    DType dtype = DType::kF32;  // type of the weights by config.json; files may differ
    std::optional<Quantization> quantization;  // present if weights are stored rounded
    int64_t vocabulary = 0;                    // rows of the embedding
    int64_t width = 0;                         // width of the residual stream
    int64_t heads = 0;
    int64_t key_heads = 0;  // heads of keys and values, a divisor of `heads`
    int64_t head_width = 0;
    int64_t mlp_width = 0;
    int64_t context = 0;  // number of positions for which the model was made
    std::vector<TransformerLayer> layers;

    NormKind norm = NormKind::kRms;
    bool has_norm_weight = true;  // if false, the factor is 1
    bool has_norm_bias = false;   // only for kLayer and kLayerOfOne
    double norm_epsilon = 1e-6;
    bool has_norms_before = true;  // a norm before attention and MLP
    bool has_norms_after = false;  // a norm after attention and MLP, as Gemma 2 has them
    bool is_parallel = false;      // attention and MLP read the same residual stream
    bool has_shared_norm = false;  // attention and MLP have one norm before them
    ActivationKind activation = ActivationKind::kSilu;
    bool is_gated = true;        // the MLP multiplies two projections
    bool is_gate_fused = false;  // the two projections are one matrix
    bool has_mlp_bias = false;
    ProjectionKind projection = ProjectionKind::kSeparate;
    bool has_projection_bias = false;  // of queries, keys and values
    double projection_cap = 0;         // clamps queries, keys and values to +- this; off if 0
    bool has_output_bias = false;      // of the projection after attention
    HeadNormKind head_norm = HeadNormKind::kNone;
    bool has_head_norm_bias = false;
    bool is_transposed = false;  // matrices of layers are [in, out], as in GPT-2
    double scale = 0;            // factor of the products of queries and keys
    double score_cap = 0;        // tanh limits the scaled products to this; no limit if 0
    double logit_cap = 0;
    double logit_scale = 1;  // factor of the logits, before their cap
    double embedding_scale = 1;
    double residual_scale = 1;           // factor of a layer's addition to the residual stream
    int64_t padding = -1;                // token whose embedding row gets no gradient; -1 if none
    bool has_learned_positions = false;  // then no layer rotates queries and keys
    Rope rope;                           // of layers that attend to all positions
    Rope window_rope;                    // of layers with a window
    bool turns_neighbours = false;       // elements 2i, 2i + 1 form a pair; if false, i, i + half
    int64_t window = 0;
    bool is_tied = false;        // the output layer uses the embedding's weight
    bool says_tied = false;      // config.json's own value for it; the weights may differ
    bool has_head_bias = false;  // of the output layer
    double embedding_dropout = 0, residual_dropout = 0, attention_dropout = 0;

    int64_t experts = 0;         // in each layer that has experts
    int64_t experts_chosen = 0;  // for each token
    int64_t expert_width = 0;
    bool expert_weights_sum_to_one = false;
    int64_t shared_expert_width = 0;      // an expert that computes every token; 0 if none
    bool has_shared_expert_gate = false;  // its output is multiplied by a sigmoid of the token

    // The names of modules in this family of models, for the placeholders ($embed, $query, …) in
    // graph/models/transformer.torchscript.
    std::map<std::string, std::string> names;

    // Return true if any layer has a window, experts, or positions that rotate.
    [[nodiscard]] bool has_window() const;
    [[nodiscard]] bool has_experts() const;
    [[nodiscard]] bool has_rotary() const;
};

}  // namespace dslaunch::storage

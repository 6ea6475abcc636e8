// Families whose norms are of another kind than Llama's, or in other places.
#include <cmath>

#include "storage/huggingface/config_values.h"
#include "storage/huggingface/family_fields.h"

namespace dslaunch::storage {

namespace {

// Reads the fields that all Gemmas have in common. Their rotary positions differ, and are read
// elsewhere.
void read_gemma_block(const JsonPlace& config, TransformerConfig& model) {
    read_sizes(config, model, {.head_width = 256, .padding = 0});
    model.mlp_width = size_at(config, "intermediate_size");
    require_off(config, "use_bidirectional_attention", "attention to later tokens (bidirectional)");
    model.norm = NormKind::kRmsOfOne;
    model.norm_epsilon = positive_or(config, "rms_norm_eps", 1e-6);
    model.activation = ActivationKind::kGeluTanh;
    read_activation(config, "hidden_activation", model);
    model.has_projection_bias = model.has_output_bias = flag_or(config, "attention_bias", false);
    model.embedding_scale = std::sqrt(static_cast<double>(model.width));
    model.is_tied = flag_or(config, "tie_word_embeddings", true);
}

// Returns the cap at KEY. Null means no cap; if KEY is missing, the family's class decides.
double cap_of(const JsonPlace& config, const char* key, double of_class) {
    if (!config.mentions(key)) return of_class;
    return config.has(key) ? positive_or(config, key, 0) : 0;
}

// Reads Gemma 2 and 3: norms after each part, and an attention scale that the config gives.
void read_later_gemma(const JsonPlace& config, TransformerConfig& model) {
    read_gemma_block(config, model);
    model.has_norms_after = true;
    rename(model, {{"attention_post_norm", "post_attention_layernorm"},
                   {"mlp_norm", "pre_feedforward_layernorm"},
                   {"mlp_post_norm", "post_feedforward_layernorm"}});
    model.scale = 1.0 / std::sqrt(positive_or(config, "query_pre_attn_scalar", 256));
}

// Reads Command-R: one norm without a bias, whose output both attention and MLP read.
void read_cohere_block(const JsonPlace& config, TransformerConfig& model,
                       const FamilyDefaults& defaults) {
    read_like_llama(config, model, defaults);
    read_layer_norm(config, "layer_norm_eps", model);
    model.has_norm_bias = false;
    model.has_mlp_bias = false;
    model.is_parallel = model.has_shared_norm = true;
    model.turns_neighbours = true;
    model.logit_scale = positive_or(config, "logit_scale", 0.0625);
}

// Sets norms after each part and none before it.
void read_olmo2_block(const JsonPlace& config, TransformerConfig& model,
                      const FamilyDefaults& defaults) {
    read_like_llama(config, model, defaults);
    model.has_mlp_bias = false;
    model.has_norms_before = false;
    model.has_norms_after = true;
    model.head_norm = HeadNormKind::kWhole;
    rename(model, {{"attention_post_norm", "post_attention_layernorm"},
                   {"mlp_post_norm", "post_feedforward_layernorm"}});
}

}  // namespace

void read_gemma(const JsonPlace& config, TransformerConfig& model) {
    read_gemma_block(config, model);
    read_rope_of_all(config, model, 10000);
}

void read_gemma2(const JsonPlace& config, TransformerConfig& model) {
    read_later_gemma(config, model);
    model.score_cap = cap_of(config, "attn_logit_softcapping", 50);
    model.logit_cap = cap_of(config, "final_logit_softcapping", 30);
    read_windows(config, model, [](size_t layer) { return (layer + 1) % 2 != 0; });
    read_rope_of_all(config, model, 10000);
}

void read_gemma3(const JsonPlace& config, TransformerConfig& model) {
    read_later_gemma(config, model);
    model.head_norm = HeadNormKind::kShared;
    // transformers reads attn_logit_softcapping and does not apply it in this family.
    model.logit_cap = cap_of(config, "final_logit_softcapping", 0);
    const auto pattern = static_cast<size_t>(size_or(config, "sliding_window_pattern", 6));
    read_windows(config, model, [&](size_t layer) { return (layer + 1) % pattern != 0; });
    read_ropes_by_type(config, model, positive_or(config, "rope_theta", 1e6),
                       positive_or(config, "rope_local_base_freq", 1e4));
}

// Reads norms without a weight.
void read_olmo(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(config, model, {.padding = 1});
    model.norm = NormKind::kLayer;
    model.has_norm_weight = false;
    model.norm_epsilon = 1e-5;
    model.has_mlp_bias = false;
    if (config.has("clip_qkv")) model.projection_cap = positive_or(config, "clip_qkv", 0);
}

void read_olmo2(const JsonPlace& config, TransformerConfig& model) {
    read_olmo2_block(config, model, {.norm_epsilon = 1e-5, .padding = 1});
}

void read_olmo3(const JsonPlace& config, TransformerConfig& model) {
    read_olmo2_block(config, model,
                     {.norm_epsilon = 1e-5, .padding = 1, .has_ropes_by_type = true});
    read_windows(config, model, [](size_t layer) { return (layer + 1) % 4 != 0; });
    // transformers applies a rope_theta outside of rope_parameters only to layers without a window.
    read_ropes_by_type(config, model, positive_or(config, "rope_theta", 5e5), 5e5);
}

void read_cohere(const JsonPlace& config, TransformerConfig& model) {
    read_cohere_block(config, model, {.theta = 5e5, .padding = 0, .is_tied = true});
    if (flag_or(config, "use_qk_norm", false)) model.head_norm = HeadNormKind::kEach;
}

// Reads layers that have no rotary positions if they attend to all positions.
void read_cohere2(const JsonPlace& config, TransformerConfig& model) {
    read_cohere_block(config, model, {.padding = 0, .is_tied = true});
    const auto pattern = static_cast<size_t>(size_or(config, "sliding_window_pattern", 4));
    read_windows(config, model, [&](size_t layer) { return (layer + 1) % pattern != 0; });
    for (TransformerLayer& layer : model.layers) layer.turns = layer.has_window;
}

}  // namespace dslaunch::storage

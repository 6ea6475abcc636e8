// Families whose blocks are Llama's blocks with other switches.
#include "base/text.h"
#include "storage/huggingface/config_values.h"
#include "storage/huggingface/family_fields.h"

namespace dslaunch::storage {

namespace {

// Sets an MLP whose gate and up projection are one matrix.
void fuse_gate(TransformerConfig& model) {
    model.is_gate_fused = true;
    model.has_mlp_bias = false;
}

// Sets an MLP of two matrices.
void read_plain_mlp(const JsonPlace& config, TransformerConfig& model, ActivationKind of_class) {
    model.is_gated = false;
    model.activation = of_class;
    read_activation(config, "hidden_act", model);
}

}  // namespace

void read_llama(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(config, model, {});
}

void read_mistral(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(config, model, {});
    model.has_projection_bias = model.has_output_bias = model.has_mlp_bias = false;
    read_window_of_all(config, model);
}

void read_phi3(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(config, model, {.rotary_part = 1, .norm_epsilon = 1e-5, .padding = 32000});
    model.has_projection_bias = model.has_output_bias = false;
    model.projection = ProjectionKind::kFused;
    fuse_gate(model);
    model.residual_dropout = probability_or(config, "resid_pdrop", 0);
    read_window_of_all(config, model);
}

// Reads SmolLM3, where some layers have no rotary positions: every fourth layer, or the layers for
// which no_rope_layers has a 0.
void read_smollm3(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(config, model, {.theta = 2e6, .padding = 128004, .is_tied = true});
    const auto interval = static_cast<size_t>(size_or(config, "no_rope_layer_interval", 4));
    for (size_t layer = 0; layer < model.layers.size(); ++layer)
        model.layers[layer].turns = (layer + 1) % interval != 0;
    if (config.has("no_rope_layers")) {
        size_t layer = 0;
        config.at("no_rope_layers").for_elements([&](const JsonPlace& turns) {
            if (layer < model.layers.size()) model.layers[layer++].turns = turns.integer() != 0;
        });
        if (layer != model.layers.size())
            config.at("no_rope_layers").refuse("has fewer numbers than the model has layers");
    }
    const bool windows =
        flag_or(config, "use_sliding_window", false) && config.has("sliding_window");
    read_windows(config, model,
                 [&](size_t layer) { return windows && !model.layers[layer].turns; });
}

void read_granite(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(config, model, {});
    model.scale = positive_or(config, "attention_multiplier", 1);
    model.embedding_scale = positive_or(config, "embedding_multiplier", 1);
    model.residual_scale = positive_or(config, "residual_multiplier", 1);
    model.logit_scale = 1 / positive_or(config, "logits_scaling", 1);
}

void read_stablelm(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(config, model, {.rotary_part = 0.25});
    read_layer_norm(config, "layer_norm_eps", model);
    model.has_projection_bias = flag_or(config, "use_qkv_bias", false);
    model.has_output_bias = model.has_mlp_bias = false;
    model.is_parallel = model.has_shared_norm = flag_or(config, "use_parallel_residual", false);
    require_zero(config, "hidden_dropout", "dropout after only the MLP");
    if (!flag_or(config, "qk_layernorm", false)) return;
    model.head_norm = HeadNormKind::kList;
    rename(model, {{"query_norm", "q_layernorm"}, {"key_norm", "k_layernorm"}});
}

void read_glm(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(
        config, model,
        {.rotary_part = 0.5, .norm_epsilon = 1.5625e-7, .head_width = 128, .padding = 151329});
    model.has_projection_bias = flag_or(config, "attention_bias", true);
    model.has_output_bias = false;
    model.turns_neighbours = true;
    fuse_gate(model);
}

void read_glm4(const JsonPlace& config, TransformerConfig& model) {
    read_glm(config, model);
    model.has_norms_after = true;
    rename(model, {{"attention_post_norm", "post_self_attn_layernorm"},
                   {"mlp_post_norm", "post_mlp_layernorm"}});
}

void read_seed_oss(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(config, model, {.head_width = 128, .padding = 1});
    model.has_projection_bias = flag_or(config, "attention_bias", true);
    model.has_output_bias = flag_or(config, "attention_out_bias", false);
    model.attention_dropout = probability_or(config, "attention_dropout", 0.1);
    model.residual_dropout = probability_or(config, "residual_dropout", 0.1);
}

void read_helium(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(config, model,
                    {.theta = 1e5, .norm_epsilon = 1e-8, .head_width = 128, .padding = 3});
    model.has_output_bias = false;
    model.turns_neighbours = true;
}

void read_ernie(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(
        config, model,
        {.theta = 5e5, .norm_epsilon = 1e-5, .head_width = 128, .padding = 0, .is_tied = true});
    model.has_projection_bias = model.has_output_bias = model.has_mlp_bias =
        flag_or(config, "use_bias", false);
    model.attention_dropout = 0;
    model.turns_neighbours = true;
}

void read_arcee(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(config, model, {.norm_epsilon = 1e-5});
    read_plain_mlp(config, model, ActivationKind::kReluSquared);
}

void read_nemotron(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(config, model, {.rotary_part = 0.5});
    read_layer_norm(config, "norm_eps", model);
    model.norm = NormKind::kLayerOfOne;
    read_plain_mlp(config, model, ActivationKind::kReluSquared);
}

void read_starcoder2(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(config, model, {.is_tied = true});
    read_layer_norm(config, "norm_epsilon", model);
    read_plain_mlp(config, model, ActivationKind::kGeluTanh);
    rename(model, {{"up", "c_fc"}, {"down", "c_proj"}});
    model.has_projection_bias = model.has_output_bias = model.has_mlp_bias =
        flag_or(config, "use_bias", true);
    model.residual_dropout = probability_or(config, "residual_dropout", 0);
    model.embedding_dropout = probability_or(config, "embedding_dropout", 0);
    read_window_of_all(config, model);
}

}  // namespace dslaunch::storage

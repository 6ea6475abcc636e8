// Families with the names and fields of GPT-2 and of GPT-NeoX.
#include "storage/huggingface/config_values.h"
#include "storage/huggingface/family_fields.h"

namespace dslaunch::storage {

namespace {

// Reads GPT-2 and StarCoder 1: learned positions, one matrix for queries, keys and values.
void read_gpt_block(const JsonPlace& config, TransformerConfig& model) {
    read_gpt_sizes(config, model);
    rename(model, {{"fused", "c_attn"}, {"output", "c_proj"}, {"up", "c_fc"}, {"down", "c_proj"}});
    model.projection = ProjectionKind::kFused;
    model.has_projection_bias = model.has_output_bias = model.has_mlp_bias = true;
    model.has_learned_positions = true;
    for (TransformerLayer& layer : model.layers) layer.turns = false;
    model.is_tied = flag_or(config, "tie_word_embeddings", true);
    if (!flag_or(config, "scale_attn_weights", true)) model.scale = 1;
    require_off(config, "add_cross_attention", "attention to an encoder (cross-attention)");
    model.embedding_dropout = probability_or(config, "embd_pdrop", 0.1);
    model.residual_dropout = probability_or(config, "resid_pdrop", 0.1);
    model.attention_dropout = probability_or(config, "attn_pdrop", 0.1);
}

}  // namespace

void read_gpt2(const JsonPlace& config, TransformerConfig& model) {
    read_gpt_block(config, model);
    model.is_transposed = true;
    require_off(config, "scale_attn_by_inverse_layer_idx",
                "attention that is scaled by the layer's index");
}

// Reads StarCoder 1: one head of keys and values for all queries.
void read_gpt_bigcode(const JsonPlace& config, TransformerConfig& model) {
    read_gpt_block(config, model);
    if (flag_or(config, "multi_query", true)) {
        model.key_heads = 1;
    } else {
        model.projection = ProjectionKind::kFusedByKey;
    }
}

void read_gptj(const JsonPlace& config, TransformerConfig& model) {
    read_gpt_sizes(config, model);
    rename(model, {{"output", "out_proj"}, {"up", "fc_in"}, {"down", "fc_out"}});
    model.has_mlp_bias = model.has_head_bias = true;
    model.is_parallel = model.has_shared_norm = true;
    model.is_tied = flag_or(config, "tie_word_embeddings", false);
    model.turns_neighbours = true;
    model.rope.width = config.mentions("rotary_dim") ? size_at(config, "rotary_dim") : 64;
    model.window_rope = model.rope;
    if (model.rope.width % 2 != 0 || model.rope.width > model.head_width)
        config.at("rotary_dim").refuse("must be even, and at most n_embd / n_head");
    model.embedding_dropout = probability_or(config, "embd_pdrop", 0);
    model.residual_dropout = probability_or(config, "resid_pdrop", 0);
    model.attention_dropout = probability_or(config, "attn_pdrop", 0);
}

void read_gpt_neox(const JsonPlace& config, TransformerConfig& model) {
    read_sizes(config, model, {});
    model.mlp_width = size_at(config, "intermediate_size");
    model.key_heads = model.heads;
    model.padding = -1;
    rename(model, {{"decoder", "gpt_neox"},
                   {"embed", "embed_in"},
                   {"norm", "final_layer_norm"},
                   {"head", "embed_out"},
                   {"attention", "attention"},
                   {"fused", "query_key_value"},
                   {"output", "dense"},
                   {"up", "dense_h_to_4h"},
                   {"down", "dense_4h_to_h"}});
    read_layer_norm(config, "layer_norm_eps", model);
    model.activation = ActivationKind::kGelu;
    read_activation(config, "hidden_act", model);
    model.is_gated = false;
    model.projection = ProjectionKind::kFusedByKey;
    model.has_projection_bias = model.has_output_bias = flag_or(config, "attention_bias", true);
    model.has_mlp_bias = true;
    model.is_parallel = flag_or(config, "use_parallel_residual", true);
    model.residual_dropout = model.embedding_dropout = probability_or(config, "hidden_dropout", 0);
    model.is_tied = flag_or(config, "tie_word_embeddings", false);
    const double theta = positive_or(config, "rope_theta", 10000);
    const double part = positive_or(config, "rotary_pct", 0.25);
    if (part > 1) config.at("rotary_pct").refuse("must be above 0 and at most 1");
    model.rope = rope_of(rope_object(config), config, model,
                         positive_or(config, "rotary_emb_base", theta), part);
    model.window_rope = model.rope;
}

void read_falcon(const JsonPlace& config, TransformerConfig& model) {
    read_sizes(config, model, {});
    model.padding = -1;
    model.mlp_width = size_or(config, "ffn_hidden_size", 4 * model.width);
    rename(model, {{"decoder", "transformer"},
                   {"embed", "word_embeddings"},
                   {"layers", "h"},
                   {"norm", "ln_f"},
                   {"attention", "self_attention"},
                   {"fused", "query_key_value"},
                   {"output", "dense"},
                   {"up", "dense_h_to_4h"},
                   {"down", "dense_4h_to_h"}});
    read_layer_norm(config, "layer_norm_epsilon", model);
    model.activation = ActivationKind::kGelu;
    read_activation(config, "activation", model);
    model.is_gated = false;
    model.has_projection_bias = model.has_output_bias = model.has_mlp_bias =
        flag_or(config, "bias", false);
    model.is_tied = flag_or(config, "tie_word_embeddings", true);
    require_off(config, "alibi", "ALiBi (a bias of attention scores in place of positions)");
    require_zero(config, "hidden_dropout", "a single dropout after attention and MLP");
    require_zero(config, "attention_dropout", "attention dropout in this model family");
    // Falcon 40B and later have a norm for each part, and a head of keys for each group of query
    // heads. Falcon 7B has one norm, and one head of keys for all queries.
    const bool is_new = flag_or(config, "new_decoder_architecture", false);
    model.is_parallel = flag_or(config, "parallel_attn", true);
    if (is_new && !model.is_parallel)
        config.at("parallel_attn").refuse("must be true, because new_decoder_architecture is true");
    model.projection = ProjectionKind::kFusedByKey;
    model.key_heads = size_or(config, "num_kv_heads", model.heads);
    if (!is_new && flag_or(config, "multi_query", true)) {
        model.projection = ProjectionKind::kFused;
        model.key_heads = 1;
    }
    const bool has_two_norms = is_new && size_or(config, "num_ln_in_parallel_attn", 2) == 2;
    model.has_shared_norm = model.is_parallel && !has_two_norms;
    if (has_two_norms) rename(model, {{"attention_norm", "ln_attn"}, {"mlp_norm", "ln_mlp"}});
    read_rope_of_all(config, model, 10000);
}

void read_phi(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(config, model, {.rotary_part = 0.5});
    rename(model, {{"norm", "final_layernorm"},
                   {"output", "dense"},
                   {"up", "fc1"},
                   {"down", "fc2"},
                   {"query_norm", "q_layernorm"},
                   {"key_norm", "k_layernorm"}});
    read_layer_norm(config, "layer_norm_eps", model);
    model.activation = ActivationKind::kGeluTanh;
    read_activation(config, "hidden_act", model);
    model.is_gated = false;
    model.has_projection_bias = model.has_output_bias = model.has_mlp_bias = model.has_head_bias =
        true;
    model.is_parallel = model.has_shared_norm = true;
    model.residual_dropout = probability_or(config, "resid_pdrop", 0);
    model.embedding_dropout = probability_or(config, "embd_pdrop", 0);
    if (!flag_or(config, "qk_layernorm", false)) return;
    model.head_norm = HeadNormKind::kShared;
    model.has_head_norm_bias = true;
}

}  // namespace dslaunch::storage

// Families with experts, and the Qwen families from which they are derived.
#include <algorithm>

#include "storage/huggingface/config_values.h"
#include "storage/huggingface/family_fields.h"

namespace dslaunch::storage {

namespace {

int64_t max_window_layers(const JsonPlace& config) {
    return config.has("max_window_layers") ? config.at("max_window_layers").integer() : 28;
}

// Sets windows for layers from max_window_layers on, if the config switches windows on at all.
void read_qwen_windows(const JsonPlace& config, TransformerConfig& model) {
    const bool on = flag_or(config, "use_sliding_window", false) && config.has("sliding_window");
    const auto first = static_cast<size_t>(std::max<int64_t>(0, max_window_layers(config)));
    read_windows(config, model, [&](size_t layer) { return on && layer >= first; });
}

}  // namespace

void read_qwen2(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(config, model, {});
    require_off(config, "use_mrope", "a position with several axes (M-RoPE)");
    model.has_projection_bias = true;
    model.has_output_bias = model.has_mlp_bias = false;
    read_qwen_windows(config, model);
}

void read_qwen3(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(config, model, {.head_width = 128});
    model.has_mlp_bias = false;
    model.head_norm = HeadNormKind::kShared;
    read_qwen_windows(config, model);
}

void read_qwen2_moe(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(config, model, {});
    model.has_projection_bias = flag_or(config, "qkv_bias", true);
    model.has_output_bias = model.has_mlp_bias = false;
    // If the config switches windows on, layers 0, 2, 4, … below max_window_layers have a window.
    const bool on = flag_or(config, "use_sliding_window", false);
    const int64_t end = max_window_layers(config);
    read_windows(config, model, [&](size_t layer) {
        return on && static_cast<int64_t>(layer) < end && (layer + 1) % 2 != 0;
    });
    read_experts(config, model, "num_experts");
    read_layers_without_experts(config, model);
    model.expert_width = size_at(config, "moe_intermediate_size");
    model.expert_weights_sum_to_one = flag_or(config, "norm_topk_prob", false);
    model.shared_expert_width = size_at(config, "shared_expert_intermediate_size");
    model.has_shared_expert_gate = true;
}

void read_qwen3_moe(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(config, model, {});
    model.has_mlp_bias = false;
    model.head_norm = HeadNormKind::kShared;
    const bool window = flag_or(config, "use_sliding_window", false);
    read_windows(config, model, [&](size_t) { return window; });
    read_experts(config, model,
                 config.has("num_local_experts") ? "num_local_experts" : "num_experts");
    read_layers_without_experts(config, model);
    model.expert_width = size_at(config, "moe_intermediate_size");
    model.expert_weights_sum_to_one = flag_or(config, "norm_topk_prob", false);
}

void read_mixtral(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(config, model, {.theta = 1e6, .norm_epsilon = 1e-5});
    model.has_projection_bias = model.has_output_bias = model.has_mlp_bias = false;
    read_window_of_all(config, model);
    require_zero(config, "router_jitter_noise", "noise in the router");
    rename(model, {{"mlp", "block_sparse_moe"}, {"gate", "w1"}, {"up", "w3"}, {"down", "w2"}});
    read_experts(config, model, "num_local_experts");
    model.expert_width = model.mlp_width;
    model.expert_weights_sum_to_one = true;
}

void read_olmoe(const JsonPlace& config, TransformerConfig& model) {
    read_like_llama(config, model, {.norm_epsilon = 1e-5, .padding = 1});
    model.has_mlp_bias = false;
    model.head_norm = HeadNormKind::kWhole;
    if (config.has("clip_qkv")) model.projection_cap = positive_or(config, "clip_qkv", 0);
    read_experts(config, model, "num_experts");
    model.expert_width = model.mlp_width;
    model.expert_weights_sum_to_one = flag_or(config, "norm_topk_prob", false);
}

}  // namespace dslaunch::storage

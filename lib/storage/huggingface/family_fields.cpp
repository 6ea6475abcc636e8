#include "storage/huggingface/family_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <string>

#include "base/text.h"
#include "storage/huggingface/config_values.h"

namespace dslaunch::storage {

namespace {

constexpr int64_t kLayersMax = 1024;
constexpr int64_t kExpertsMax = 1024;

const std::map<std::string, std::string>& llama_names() {
    static const std::map<std::string, std::string> names{
        {"decoder", "model"},
        {"embed", "embed_tokens"},
        {"layers", "layers"},
        {"norm", "norm"},
        {"head", "lm_head"},
        {"attention_norm", "input_layernorm"},
        {"attention", "self_attn"},
        {"query", "q_proj"},
        {"key", "k_proj"},
        {"value", "v_proj"},
        {"fused", "qkv_proj"},
        {"query_norm", "q_norm"},
        {"key_norm", "k_norm"},
        {"output", "o_proj"},
        {"mlp_norm", "post_attention_layernorm"},
        {"mlp", "mlp"},
        {"gate", "gate_proj"},
        {"up", "up_proj"},
        {"gate_up", "gate_up_proj"},
        {"down", "down_proj"},
        {"router", "gate"},
        {"experts", "experts"},
        {"shared_expert", "shared_expert"},
        {"shared_expert_gate", "shared_expert_gate"},
        // Names that do not occur in Llama's weights.
        {"norms", "norms"},
        {"positions", "position_embedding"},
        {"attention_post_norm", "attention_post_norm"},
        {"mlp_post_norm", "mlp_post_norm"},
    };
    return names;
}

void set_head_width(TransformerConfig& model, int64_t width) {
    model.head_width = width;
    model.scale = 1.0 / std::sqrt(static_cast<double>(width));
}

}  // namespace

void require_off(const JsonPlace& config, const char* key, std::string_view what) {
    if (flag_or(config, key, false))
        config.at(key).refuse(fmt::format("{} is not supported by this version", what));
}

void require_zero(const JsonPlace& config, const char* key, std::string_view what) {
    if (number_or(config, key, 0) != 0)
        config.at(key).refuse(fmt::format("{} is not supported by this version", what));
}

void read_activation(const JsonPlace& config, const char* key, TransformerConfig& model) {
    static const std::map<std::string, ActivationKind, std::less<>> table{
        {"silu", ActivationKind::kSilu},
        {"swish", ActivationKind::kSilu},
        {"gelu", ActivationKind::kGelu},
        {"gelu_new", ActivationKind::kGeluTanh},
        {"gelu_fast", ActivationKind::kGeluTanh},
        {"gelu_pytorch_tanh", ActivationKind::kGeluTanh},
        {"quick_gelu", ActivationKind::kQuickGelu},
        {"relu", ActivationKind::kRelu},
        {"relu2", ActivationKind::kReluSquared},
    };
    if (!config.has(key)) return;
    const JsonPlace place = config.at(key);
    const auto found = table.find(place.text());
    if (found == table.end())
        place.refuse(fmt::format("the activation `{}` is not supported by this version",
                                 printable(place.text())));
    model.activation = found->second;
}

void read_padding(const JsonPlace& config, TransformerConfig& model, int64_t of_class) {
    constexpr const char* kKey = "pad_token_id";
    model.padding = config.mentions(kKey) ? -1 : of_class;
    if (config.has(kKey)) model.padding = config.at(kKey).integer();
    // A padding token outside of the vocabulary occurs in no text.
    if (model.padding < 0 || model.padding >= model.vocabulary) model.padding = -1;
}

void read_sizes(const JsonPlace& config, TransformerConfig& model, const FamilyDefaults& defaults) {
    model.names = llama_names();
    model.vocabulary = size_at(config, "vocab_size");
    model.width = size_at(config, "hidden_size");
    model.heads = size_at(config, "num_attention_heads");
    model.key_heads = size_or(config, "num_key_value_heads", model.heads);
    model.layers.resize(static_cast<size_t>(size_at(config, "num_hidden_layers", kLayersMax)));
    if (config.has("head_dim")) {
        set_head_width(model, size_at(config, "head_dim"));
    } else if (defaults.head_width > 0 && !config.mentions("head_dim")) {
        set_head_width(model, defaults.head_width);
    } else {
        if (model.width % model.heads != 0)
            config.at("num_attention_heads").refuse("does not divide hidden_size");
        set_head_width(model, model.width / model.heads);
    }
    model.context = size_or(config, "max_position_embeddings", 2048);
    model.attention_dropout = probability_or(config, "attention_dropout", 0);
    read_padding(config, model, defaults.padding);
}

void read_gpt_sizes(const JsonPlace& config, TransformerConfig& model) {
    // Returns the key that the file uses: the family's, or else the common one.
    const auto key = [&](const char* own, const char* common) {
        return !config.has(own) && config.has(common) ? common : own;
    };
    model.names = llama_names();
    rename(model, {{"decoder", "transformer"},
                   {"embed", "wte"},
                   {"positions", "wpe"},
                   {"layers", "h"},
                   {"norm", "ln_f"},
                   {"attention_norm", "ln_1"},
                   {"attention", "attn"},
                   {"mlp_norm", "ln_2"}});
    model.vocabulary = size_at(config, "vocab_size");
    const char* const heads = key("n_head", "num_attention_heads");
    model.width = size_at(config, key("n_embd", "hidden_size"));
    model.heads = model.key_heads = size_at(config, heads);
    if (model.width % model.heads != 0) config.at(heads).refuse("does not divide n_embd");
    set_head_width(model, model.width / model.heads);
    model.mlp_width = size_or(config, "n_inner", 4 * model.width);
    model.layers.resize(
        static_cast<size_t>(size_at(config, key("n_layer", "num_hidden_layers"), kLayersMax)));
    model.context = size_at(config, key("n_positions", "max_position_embeddings"));
    read_layer_norm(config, "layer_norm_epsilon", model);
    model.activation = ActivationKind::kGeluTanh;
    read_activation(config, "activation_function", model);
    model.is_gated = false;
}

void rename(TransformerConfig& model,
            std::initializer_list<std::pair<const char*, const char*>> names) {
    for (const auto& [ours, name] : names) model.names[ours] = name;
}

void read_layer_norm(const JsonPlace& config, const char* key, TransformerConfig& model) {
    model.norm = NormKind::kLayer;
    model.has_norm_bias = true;
    model.norm_epsilon = positive_or(config, key, 1e-5);
}

std::optional<JsonPlace> rope_object(const JsonPlace& config) {
    const std::optional<JsonPlace> before = object_at(config, "rope_scaling");
    bool has_members = false;
    if (before)
        before->for_members([&](const std::string&, const JsonPlace&) { has_members = true; });
    return has_members ? before : object_at(config, "rope_parameters");
}

Rope rope_of(const std::optional<JsonPlace>& place, const JsonPlace& config,
             const TransformerConfig& model, double theta, std::optional<double> part) {
    constexpr const char* kOriginal = "original_max_position_embeddings";
    return read_rope(place ? &*place : nullptr,
                     {theta, part, model.head_width, model.context,
                      size_or(config, kOriginal, model.context), config.has(kOriginal)});
}

void read_rope_of_all(const JsonPlace& config, TransformerConfig& model, double theta,
                      std::optional<double> part) {
    model.rope = rope_of(rope_object(config), config, model,
                         positive_or(config, "rope_theta", theta), rotary_share(config, part));
    model.window_rope = model.rope;
}

void read_ropes_by_type(const JsonPlace& config, TransformerConfig& model, double theta,
                        double window_theta) {
    const auto by_type = object_at(config, "rope_parameters");
    const auto all =
        by_type ? object_at(*by_type, "full_attention") : object_at(config, "rope_scaling");
    const auto window = by_type ? object_at(*by_type, "sliding_attention") : std::nullopt;
    if (by_type && config.has("rope_scaling"))
        config.at("rope_scaling").refuse("rope_parameters is also given: remove one of the two");
    static_cast<void>(rotary_share(config, std::nullopt));
    const auto rope = [&](const std::optional<JsonPlace>& place, double own_theta) {
        return read_rope(place ? &*place : nullptr,
                         {own_theta, std::nullopt, model.head_width, model.context, model.context});
    };
    model.rope = rope(all, theta);
    model.window_rope = rope(window, window_theta);
    for (const Rope& read : {model.rope, model.window_rope})
        if (read.kind == RopeKind::kLong || read.kind == RopeKind::kDynamic)
            config.refuse(
                fmt::format("the rope type `{}` is not supported in models whose layer types have "
                            "separate rope settings",
                            read.kind == RopeKind::kLong ? "longrope" : "dynamic"));
}

void read_windows(const JsonPlace& config, TransformerConfig& model,
                  const std::function<bool(size_t)>& by_default) {
    if (config.has("layer_types")) {
        size_t layer = 0;
        config.at("layer_types").for_elements([&](const JsonPlace& type) {
            if (layer >= model.layers.size()) type.refuse("there are fewer layers than types");
            if (type.text() != "sliding_attention" && type.text() != "full_attention")
                type.refuse(fmt::format("layers of type `{}` are not supported by this version",
                                        printable(type.text())));
            model.layers[layer++].has_window = type.text() == "sliding_attention";
        });
        if (layer != model.layers.size())
            config.at("layer_types").refuse("there are more layers than types");
    } else {
        for (size_t layer = 0; layer < model.layers.size(); ++layer)
            model.layers[layer].has_window = by_default(layer);
    }
    if (model.has_window()) model.window = size_at(config, "sliding_window");
}

void read_window_of_all(const JsonPlace& config, TransformerConfig& model) {
    const bool all = config.has("sliding_window");
    read_windows(config, model, [&](size_t) { return all; });
}

void read_experts(const JsonPlace& config, TransformerConfig& model, const char* key) {
    require_off(config, "output_router_logits", "a loss for the router");
    model.experts = size_at(config, key, kExpertsMax);
    model.experts_chosen = size_at(config, "num_experts_per_tok");
    for (TransformerLayer& layer : model.layers) layer.has_experts = true;
}

void read_layers_without_experts(const JsonPlace& config, TransformerConfig& model) {
    const auto step = static_cast<size_t>(size_or(config, "decoder_sparse_step", 1));
    for (size_t layer = 0; layer < model.layers.size(); ++layer)
        model.layers[layer].has_experts = (layer + 1) % step == 0;
    if (!config.has("mlp_only_layers")) return;
    config.at("mlp_only_layers").for_elements([&](const JsonPlace& layer) {
        const int64_t index = layer.integer();
        if (index >= 0 && index < std::ssize(model.layers))
            model.layers[static_cast<size_t>(index)].has_experts = false;
    });
}

void read_like_llama(const JsonPlace& config, TransformerConfig& model,
                     const FamilyDefaults& defaults) {
    read_sizes(config, model, defaults);
    model.mlp_width = size_at(config, "intermediate_size");
    model.norm_epsilon = positive_or(config, "rms_norm_eps", defaults.norm_epsilon);
    read_activation(config, "hidden_act", model);
    model.has_projection_bias = model.has_output_bias = flag_or(config, "attention_bias", false);
    model.has_mlp_bias = flag_or(config, "mlp_bias", false);
    model.is_tied = flag_or(config, "tie_word_embeddings", defaults.is_tied);
    if (!defaults.has_ropes_by_type)
        read_rope_of_all(config, model, defaults.theta, defaults.rotary_part);
}

}  // namespace dslaunch::storage

#include "storage/huggingface/transformer_config.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "base/text/json_place.h"
#include "storage/huggingface/config_values.h"
#include "storage/huggingface/rope_config.h"

namespace dslaunch::storage {

namespace {

constexpr int64_t kLayersMax = 4096;
constexpr int64_t kExpertsMax = 4096;

void require_off(const JsonPlace& config, const char* key, std::string_view what) {
    if (flag_or(config, key, false))
        config.at(key).refuse(fmt::format("{} is not computed by this version", what));
}

ActivationKind activation_of(const JsonPlace& place) {
    static const std::map<std::string, ActivationKind, std::less<>> table{
        {"silu", ActivationKind::kSilu},
        {"swish", ActivationKind::kSilu},
        {"gelu", ActivationKind::kGelu},
        {"gelu_new", ActivationKind::kGeluTanh},
        {"gelu_fast", ActivationKind::kGeluTanh},
        {"gelu_pytorch_tanh", ActivationKind::kGeluTanh},
        {"quick_gelu", ActivationKind::kQuickGelu},
        {"relu", ActivationKind::kRelu},
    };
    const auto found = table.find(place.text());
    if (found == table.end())
        place.refuse(fmt::format("the activation `{}` is not known to this version",
                                 printable(place.text())));
    return found->second;
}

DType dtype_named(const JsonPlace& place) {
    if (place.text() == "float32" || place.text() == "auto") return DType::kF32;
    if (place.text() == "bfloat16") return DType::kBF16;
    if (place.text() == "float16") return DType::kF16;
    place.refuse(
        fmt::format("weights of type `{}` are not known to this version", printable(place.text())));
}

// ---- families ----

// What a family's config class has where config.json is silent, and how it is laid out.
struct Family {
    const char* architecture;
    const char* model_type;
    void (*read)(const JsonPlace& config, TransformerConfig& model);
};

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
        // Names that the family's weights lack.
        {"positions", "position_embedding"},
        {"attention_post_norm", "attention_post_norm"},
        {"mlp_post_norm", "mlp_post_norm"},
    };
    return names;
}

// OF_CLASS: the token where config.json does not mention one; -1: none.
void read_padding(const JsonPlace& config, TransformerConfig& model, int64_t of_class) {
    constexpr const char* kKey = "pad_token_id";
    model.padding = config.mentions(kKey) ? -1 : of_class;
    if (config.has(kKey)) model.padding = config.at(kKey).integer();
    // A token that the vocabulary lacks is one that no text has.
    if (model.padding < 0 || model.padding >= model.vocabulary) model.padding = -1;
}

void read_sizes(const JsonPlace& config, TransformerConfig& model) {
    model.names = llama_names();
    model.vocabulary = size_at(config, "vocab_size");
    model.width = size_at(config, "hidden_size");
    model.mlp_width = size_at(config, "intermediate_size");
    model.heads = size_at(config, "num_attention_heads");
    model.key_heads = size_or(config, "num_key_value_heads", model.heads);
    model.layers.resize(static_cast<size_t>(size_at(config, "num_hidden_layers", kLayersMax)));
    if (!config.has("head_dim") && model.width % model.heads != 0)
        config.at("num_attention_heads").refuse("does not divide hidden_size");
    model.head_width = size_or(config, "head_dim", model.width / model.heads);
    model.context = size_or(config, "max_position_embeddings", 2048);
    model.scale = 1.0 / std::sqrt(static_cast<double>(model.head_width));
    model.attention_dropout = probability_or(config, "attention_dropout", 0);
    read_padding(config, model, -1);
}

// The object with the numbers of rotary positions, in the files of today and of before.
std::optional<JsonPlace> rope_object(const JsonPlace& config) {
    return object_at(config, config.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
}

// Where CONFIG has no object, or one without these numbers, THETA and PART count.
Rope rope_of(const std::optional<JsonPlace>& place, const JsonPlace& config,
             const TransformerConfig& model, double theta, double part = 1) {
    return read_rope(place ? &*place : nullptr,
                     {theta, part, model.head_width, model.context,
                      size_or(config, "original_max_position_embeddings", model.context)});
}

void read_rope_of_llama(const JsonPlace& config, TransformerConfig& model, double theta) {
    model.rope =
        rope_of(rope_object(config), config, model, positive_or(config, "rope_theta", theta),
                positive_or(config, "partial_rotary_factor", 1));
    model.window_rope = model.rope;
}

// Layers that see a window: those that config.json lists, or else those of which BY_DEFAULT says
// so.
void read_windows(const JsonPlace& config, TransformerConfig& model,
                  const std::function<bool(size_t)>& by_default) {
    if (config.has("layer_types")) {
        size_t layer = 0;
        config.at("layer_types").for_elements([&](const JsonPlace& type) {
            if (layer >= model.layers.size()) type.refuse("there are fewer layers than types");
            if (type.text() != "sliding_attention" && type.text() != "full_attention")
                type.refuse(fmt::format("layers of type `{}` are not known to this version",
                                        printable(type.text())));
            model.layers[layer++].window = type.text() == "sliding_attention";
        });
        if (layer != model.layers.size())
            config.at("layer_types").refuse("there are more layers than types");
    } else {
        for (size_t layer = 0; layer < model.layers.size(); ++layer)
            model.layers[layer].window = by_default(layer);
    }
    if (model.has_window()) model.window = size_at(config, "sliding_window");
}

void read_llama(const JsonPlace& config, TransformerConfig& model) {
    read_sizes(config, model);
    model.norm_epsilon = positive_or(config, "rms_norm_eps", 1e-6);
    if (config.has("hidden_act")) model.activation = activation_of(config.at("hidden_act"));
    model.projection_bias = model.output_bias = flag_or(config, "attention_bias", false);
    model.mlp_bias = flag_or(config, "mlp_bias", false);
    model.tied = flag_or(config, "tie_word_embeddings", false);
    read_rope_of_llama(config, model, 10000);
}

void read_mistral(const JsonPlace& config, TransformerConfig& model) {
    read_llama(config, model);
    model.projection_bias = model.output_bias = model.mlp_bias = false;
    const bool all = config.has("sliding_window");
    read_windows(config, model, [&](size_t) { return all; });
}

// Layers from max_window_layers on, where the config switches windows on at all.
void read_qwen_windows(const JsonPlace& config, TransformerConfig& model) {
    const bool on = flag_or(config, "use_sliding_window", false) && config.has("sliding_window");
    const auto first =
        static_cast<size_t>(config.has("max_window_layers")
                                ? std::max<int64_t>(0, config.at("max_window_layers").integer())
                                : 28);
    read_windows(config, model, [&](size_t layer) { return on && layer >= first; });
}

void read_qwen2(const JsonPlace& config, TransformerConfig& model) {
    read_llama(config, model);
    require_off(config, "use_mrope", "a position in several axes");
    model.projection_bias = true;
    model.output_bias = false;
    read_qwen_windows(config, model);
}

void read_qwen3(const JsonPlace& config, TransformerConfig& model) {
    read_llama(config, model);
    if (!config.has("head_dim")) {
        model.head_width = 128;
        model.scale = 1.0 / std::sqrt(static_cast<double>(model.head_width));
        read_rope_of_llama(config, model, 10000);
    }
    model.head_norms = true;
    read_qwen_windows(config, model);
}

void read_qwen3_moe(const JsonPlace& config, TransformerConfig& model) {
    read_llama(config, model);
    model.head_norms = true;
    const bool window = flag_or(config, "use_sliding_window", false);
    read_windows(config, model, [&](size_t) { return window; });
    require_off(config, "output_router_logits", "a loss of the router");
    model.experts = config.has("num_local_experts")
                        ? size_at(config, "num_local_experts", kExpertsMax)
                        : size_at(config, "num_experts", kExpertsMax);
    model.experts_chosen = size_at(config, "num_experts_per_tok");
    model.expert_width = size_at(config, "moe_intermediate_size");
    model.expert_weights_sum_to_one = flag_or(config, "norm_topk_prob", false);
    const auto step = static_cast<size_t>(size_or(config, "decoder_sparse_step", 1));
    for (size_t layer = 0; layer < model.layers.size(); ++layer)
        model.layers[layer].experts = (layer + 1) % step == 0;
    if (!config.has("mlp_only_layers")) return;
    config.at("mlp_only_layers").for_elements([&](const JsonPlace& layer) {
        const int64_t index = layer.integer();
        if (index >= 0 && index < std::ssize(model.layers))
            model.layers[static_cast<size_t>(index)].experts = false;
    });
}

void read_mixtral(const JsonPlace& config, TransformerConfig& model) {
    read_llama(config, model);
    model.norm_epsilon = positive_or(config, "rms_norm_eps", 1e-5);
    model.projection_bias = model.output_bias = model.mlp_bias = false;
    read_rope_of_llama(config, model, 1e6);
    const bool window = config.has("sliding_window");
    read_windows(config, model, [&](size_t) { return window; });
    require_off(config, "output_router_logits", "a loss of the router");
    if (number_or(config, "router_jitter_noise", 0) != 0)
        config.at("router_jitter_noise").refuse("noise at the router is not computed here");
    model.names["mlp"] = "block_sparse_moe";
    model.names["gate"] = "w1";
    model.names["up"] = "w3";
    model.names["down"] = "w2";
    model.experts = size_at(config, "num_local_experts", kExpertsMax);
    model.experts_chosen = size_at(config, "num_experts_per_tok");
    model.expert_width = model.mlp_width;
    model.expert_weights_sum_to_one = true;
    for (TransformerLayer& layer : model.layers) layer.experts = true;
}

// What all Gemmas share, without their positions.
void read_gemma_block(const JsonPlace& config, TransformerConfig& model) {
    read_sizes(config, model);
    if (!config.has("head_dim")) model.head_width = 256;
    read_padding(config, model, 0);
    model.scale = 1.0 / std::sqrt(static_cast<double>(model.head_width));
    require_off(config, "use_bidirectional_attention", "attention to later tokens");
    model.norm = NormKind::kRmsOfOne;
    model.norm_epsilon = positive_or(config, "rms_norm_eps", 1e-6);
    model.activation = ActivationKind::kGeluTanh;
    if (config.has("hidden_activation"))
        model.activation = activation_of(config.at("hidden_activation"));
    model.projection_bias = model.output_bias = flag_or(config, "attention_bias", false);
    model.embedding_scale = std::sqrt(static_cast<double>(model.width));
    model.tied = flag_or(config, "tie_word_embeddings", true);
}

void read_gemma(const JsonPlace& config, TransformerConfig& model) {
    read_gemma_block(config, model);
    read_rope_of_llama(config, model, 10000);
}

// A cap of null is none; one that is left out is that of the family's class.
double cap_of(const JsonPlace& config, const char* key, double of_class) {
    if (!config.mentions(key)) return of_class;
    return config.has(key) ? positive_or(config, key, 0) : 0;
}

// Gemma 2 and 3: norms behind each part, and a scale of its own.
void read_later_gemma(const JsonPlace& config, TransformerConfig& model) {
    read_gemma_block(config, model);
    model.norms_behind = true;
    model.names["attention_post_norm"] = "post_attention_layernorm";
    model.names["mlp_norm"] = "pre_feedforward_layernorm";
    model.names["mlp_post_norm"] = "post_feedforward_layernorm";
    model.scale = 1.0 / std::sqrt(positive_or(config, "query_pre_attn_scalar", 256));
}

void read_gemma2(const JsonPlace& config, TransformerConfig& model) {
    read_later_gemma(config, model);
    model.score_cap = cap_of(config, "attn_logit_softcapping", 50);
    model.logit_cap = cap_of(config, "final_logit_softcapping", 30);
    read_windows(config, model, [](size_t layer) { return (layer + 1) % 2 != 0; });
    read_rope_of_llama(config, model, 10000);
}

void read_gemma3(const JsonPlace& config, TransformerConfig& model) {
    read_later_gemma(config, model);
    model.head_norms = true;
    // transformers reads attn_logit_softcapping and does not apply it in this family.
    model.logit_cap = cap_of(config, "final_logit_softcapping", 0);
    const auto pattern = static_cast<size_t>(size_or(config, "sliding_window_pattern", 6));
    read_windows(config, model, [&](size_t layer) { return (layer + 1) % pattern != 0; });
    // Newer files have an object for each type of layer in rope_parameters.
    const auto by_type = object_at(config, "rope_parameters");
    const auto all =
        by_type ? object_at(*by_type, "full_attention") : object_at(config, "rope_scaling");
    const auto window = by_type ? object_at(*by_type, "sliding_attention") : std::nullopt;
    model.rope = rope_of(all, config, model, positive_or(config, "rope_theta", 1e6));
    model.window_rope =
        rope_of(window, config, model, positive_or(config, "rope_local_base_freq", 1e4));
}

void read_phi3(const JsonPlace& config, TransformerConfig& model) {
    read_llama(config, model);
    model.norm_epsilon = positive_or(config, "rms_norm_eps", 1e-5);
    model.projection_bias = model.output_bias = model.mlp_bias = false;
    model.projection = ProjectionKind::kFused;
    model.gate_fused = true;
    model.residual_dropout = probability_or(config, "resid_pdrop", 0);
    read_padding(config, model, 32000);
    const bool window = config.has("sliding_window");
    read_windows(config, model, [&](size_t) { return window; });
}

void read_gpt2(const JsonPlace& config, TransformerConfig& model) {
    model.names = {
        {"decoder", "transformer"},
        {"embed", "wte"},
        {"positions", "wpe"},
        {"layers", "h"},
        {"norm", "ln_f"},
        {"head", "lm_head"},
        {"attention_norm", "ln_1"},
        {"attention", "attn"},
        {"fused", "c_attn"},
        {"output", "c_proj"},
        {"mlp_norm", "ln_2"},
        {"mlp", "mlp"},
        {"up", "c_fc"},
        {"down", "c_proj"},
        {"query", "query"},
        {"key", "key"},
        {"value", "value"},
        {"gate", "gate"},
        {"gate_up", "gate_up"},
        {"router", "router"},
        {"experts", "experts"},
        {"query_norm", "q_norm"},
        {"key_norm", "k_norm"},
        {"attention_post_norm", "ln_a"},
        {"mlp_post_norm", "ln_m"},
    };
    model.vocabulary = size_at(config, "vocab_size");
    model.width = size_at(config, "n_embd");
    model.heads = model.key_heads = size_at(config, "n_head");
    if (model.width % model.heads != 0) config.at("n_head").refuse("does not divide n_embd");
    model.head_width = model.width / model.heads;
    model.mlp_width = size_or(config, "n_inner", 4 * model.width);
    model.layers.resize(static_cast<size_t>(size_at(config, "n_layer", kLayersMax)));
    model.context = size_at(config, "n_positions");
    model.norm = NormKind::kLayer;
    model.norm_epsilon = positive_or(config, "layer_norm_epsilon", 1e-5);
    model.activation = ActivationKind::kGeluTanh;
    if (config.has("activation_function"))
        model.activation = activation_of(config.at("activation_function"));
    model.gated = false;
    model.transposed = true;
    model.projection = ProjectionKind::kFused;
    model.projection_bias = model.output_bias = model.mlp_bias = true;
    model.learned_positions = true;
    model.tied = flag_or(config, "tie_word_embeddings", true);
    model.scale = flag_or(config, "scale_attn_weights", true)
                      ? 1.0 / std::sqrt(static_cast<double>(model.head_width))
                      : 1.0;
    require_off(config, "scale_attn_by_inverse_layer_idx", "attention scaled by the layer's index");
    require_off(config, "add_cross_attention", "attention to an encoder");
    model.embedding_dropout = probability_or(config, "embd_pdrop", 0.1);
    model.residual_dropout = probability_or(config, "resid_pdrop", 0.1);
    model.attention_dropout = probability_or(config, "attn_pdrop", 0.1);
}

void read_gpt_neox(const JsonPlace& config, TransformerConfig& model) {
    read_sizes(config, model);
    model.key_heads = model.heads;
    model.padding = -1;
    for (const auto& [ours, name] :
         std::initializer_list<std::pair<const char*, const char*>>{{"decoder", "gpt_neox"},
                                                                    {"embed", "embed_in"},
                                                                    {"norm", "final_layer_norm"},
                                                                    {"head", "embed_out"},
                                                                    {"attention", "attention"},
                                                                    {"fused", "query_key_value"},
                                                                    {"output", "dense"},
                                                                    {"up", "dense_h_to_4h"},
                                                                    {"down", "dense_4h_to_h"}})
        model.names[ours] = name;
    model.norm = NormKind::kLayer;
    model.norm_epsilon = positive_or(config, "layer_norm_eps", 1e-5);
    model.activation =
        config.has("hidden_act") ? activation_of(config.at("hidden_act")) : ActivationKind::kGelu;
    model.gated = false;
    model.projection = ProjectionKind::kFusedByHead;
    model.projection_bias = model.output_bias = flag_or(config, "attention_bias", true);
    model.mlp_bias = true;
    model.parallel = flag_or(config, "use_parallel_residual", true);
    model.residual_dropout = model.embedding_dropout = probability_or(config, "hidden_dropout", 0);
    model.tied = flag_or(config, "tie_word_embeddings", false);
    const double theta = positive_or(config, "rope_theta", 10000);
    model.rope =
        rope_of(rope_object(config), config, model, positive_or(config, "rotary_emb_base", theta),
                positive_or(config, "rotary_pct", 0.25));
}

constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", "llama", read_llama},
    {"MistralForCausalLM", "mistral", read_mistral},
    {"Qwen2ForCausalLM", "qwen2", read_qwen2},
    {"Qwen3ForCausalLM", "qwen3", read_qwen3},
    {"Qwen3MoeForCausalLM", "qwen3_moe", read_qwen3_moe},
    {"MixtralForCausalLM", "mixtral", read_mixtral},
    {"GemmaForCausalLM", "gemma", read_gemma},
    {"Gemma2ForCausalLM", "gemma2", read_gemma2},
    {"Gemma3ForCausalLM", "gemma3_text", read_gemma3},
    {"Phi3ForCausalLM", "phi3", read_phi3},
    {"GPT2LMHeadModel", "gpt2", read_gpt2},
    {"GPTNeoXForCausalLM", "gpt_neox", read_gpt_neox},
};

const Family& family_of(const JsonPlace& config) {
    std::string name;
    if (config.has("architectures"))
        config.at("architectures").for_elements([&](const JsonPlace& one) {
            if (name.empty()) name = one.text();
        });
    const std::string type = config.has("model_type") ? config.at("model_type").text() : "";
    if (name.empty() && type.empty())
        config.refuse("neither architectures nor model_type says what the model is");
    for (const Family& family : kFamilies)
        if (name.empty() ? type == family.model_type : name == family.architecture) return family;
    config.refuse(fmt::format(
        "the architecture `{}` is not known to this version; known are {}. Any model can be "
        "trained from a file that torch.export.save writes (docs/models.md)",
        printable(name.empty() ? type : name), join(known_architectures(), ", ")));
}

void check(const JsonPlace& config, const TransformerConfig& model) {
    if (model.heads % model.key_heads != 0)
        config.refuse(fmt::format("{} heads cannot share {} heads of keys and values", model.heads,
                                  model.key_heads));
    if (model.has_experts() && model.experts_chosen > model.experts)
        config.refuse(
            fmt::format("{} experts of {} cannot be chosen", model.experts_chosen, model.experts));
    if (config.has("quantization_config"))
        config.at("quantization_config")
            .refuse("weights are quantized; take the folder of the model in 16 or 32 bits");
}

}  // namespace

bool TransformerConfig::has_window() const {
    return std::ranges::any_of(layers, &TransformerLayer::window);
}

bool TransformerConfig::has_experts() const {
    return std::ranges::any_of(layers, &TransformerLayer::experts);
}

std::vector<std::string> known_architectures() {
    std::vector<std::string> names;
    for (const Family& family : kFamilies) names.emplace_back(family.architecture);
    return names;
}

TransformerConfig parse_transformer_config(const std::string& path, std::string_view text) {
    const JsonPlace::Json json = JsonPlace::parse(path, text);
    const JsonPlace config(path, json);
    const Family& family = family_of(config);
    TransformerConfig model;
    model.architecture = family.architecture;
    family.read(config, model);
    for (const char* key : {"torch_dtype", "dtype"})
        if (config.has(key)) model.dtype = dtype_named(config.at(key));
    check(config, model);
    return model;
}

}  // namespace dslaunch::storage

// Writes the values of a config.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "storage/gguf_model/gguf_config.h"

namespace dslaunch::storage {
namespace {

// Adds one model's values.
class ConfigWriter {
  public:
    ConfigWriter(const TransformerConfig& config, const GgufFamily& family,
                 const std::string& place, GgufValues& values)
        : config_(config), name_(family.name), place_(place), values_(values) {}

    void write(int64_t context) {
        add("vocab_size", config_.vocabulary);
        add("context_length", context);
        add("embedding_length", config_.width);
        add("block_count", std::ssize(config_.layers));
        add("feed_forward_length",
            config_.mlp_width > 0 ? config_.mlp_width : config_.expert_width);
        add("attention.head_count", config_.heads);
        add("attention.head_count_kv", config_.key_heads);
        add("attention.key_length", config_.head_width);
        add("attention.value_length", config_.head_width);
        const bool is_rms = config_.norm == NormKind::kRms || config_.norm == NormKind::kRmsOfOne;
        add(is_rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
            config_.norm_epsilon);
        require(config_.activation == expected_activation() ||
                    (config_.activation == ActivationKind::kGelu &&
                     expected_activation() == ActivationKind::kGeluTanh),
                "llama.cpp has another activation in this family");
        require_same_tensors();
        write_scales();
        write_windows();
        write_experts();
        if (is("stablelm") || is("gptneox")) add("use_parallel_residual", config_.is_parallel);
        if (is("falcon")) require(config_.is_parallel, "`parallel_attn` must be true");
        if (is("olmo") && config_.projection_cap > 0)
            add("attention.clamp_kqv", config_.projection_cap);
        require(is("olmo") || config_.projection_cap == 0, "llama.cpp ignores `clip_qkv`");
        require(!is("olmoe") || config_.key_heads == config_.heads,
                "llama.cpp needs as many heads of keys as of queries in this family");
    }

    [[nodiscard]] std::vector<GgufFactors> write_rope() {
        if (!config_.has_rotary()) return {};
        const Rope& rope = config_.rope;
        for (size_t i = 0; i < config_.layers.size(); ++i)
            require(config_.layers[i].turns == expects_turn(i),
                    "llama.cpp applies rope to other layers than this model does");
        add("rope.dimension_count", rope.width);
        add("rope.freq_base", rope.theta);
        if (is("gemma3"))
            require(config_.window_rope.theta == 10000 &&
                        config_.window_rope.kind == RopeKind::kDefault,
                    "llama.cpp expects `rope_local_base_freq` of 10000");
        switch (rope.kind) {
            case RopeKind::kDefault:
                return {};
            case RopeKind::kLinear:
                scaling("linear", rope.factor);
                return {};
            case RopeKind::kLlama3:
                require(is("llama") || is("granite") || is("arcee"),
                        "llama.cpp does not read the factors of `llama3` in this family");
                return {{"rope_freqs.weight", llama3_factors(rope)}};
            case RopeKind::kYarn:
                require(rope.beta_fast == 32 && rope.beta_slow == 1 && rope.truncate &&
                            std::abs(rope.magnitude - (1 + 0.1 * std::log(rope.factor))) < 1e-6,
                        "llama.cpp supports `yarn` only with beta_fast 32, beta_slow 1, truncate "
                        "true and the default attention_factor");
                scaling("yarn", rope.factor);
                add("rope.scaling.original_context_length", rope.original_context);
                return {};
            case RopeKind::kLong:
                require(is("phi3"), "only Phi-3 has `longrope` in llama.cpp");
                add("rope.scaling.attn_factor", rope.magnitude);
                add("rope.scaling.original_context_length", rope.original_context);
                return {{"rope_factors_long.weight", floats(rope.long_factors)},
                        {"rope_factors_short.weight", floats(rope.short_factors)}};
            case RopeKind::kDynamic:
            case RopeKind::kProportional:
                break;
        }
        require(false, "llama.cpp has no `dynamic` or `proportional` rope");
        return {};
    }

  private:
    [[nodiscard]] bool is(std::string_view name) const { return name == name_; }
    [[nodiscard]] bool is_gemma() const { return name_.starts_with("gemma"); }

    void require(bool holds, std::string_view why) const {
        if (!holds)
            fail(ExitCode::kInput, "{}: cannot be written as GGUF: {}", printable(place_), why);
    }

    std::string key(std::string_view name) const { return fmt::format("{}.{}", name_, name); }
    void add(std::string_view name, int64_t number) { values_.add(key(name), number); }
    void add(std::string_view name, double number) {
        values_.add(key(name), static_cast<float>(number));
    }
    void add(std::string_view name, bool flag) { values_.add(key(name), flag); }

    void scaling(const char* type, double factor) {
        values_.add(key("rope.scaling.type"), type);
        add("rope.scaling.factor", factor);
    }

    static std::vector<float> floats(const std::vector<double>& numbers) {
        std::vector<float> all;
        for (const double number : numbers) all.push_back(static_cast<float>(number));
        return all;
    }

    [[nodiscard]] ActivationKind expected_activation() const {
        if (is_gemma() || is("gpt2") || is("starcoder") || is("starcoder2") || is("phi2") ||
            is("gptneox") || is("falcon"))
            return ActivationKind::kGeluTanh;
        if (is("nemotron") || is("arcee")) return ActivationKind::kReluSquared;
        return ActivationKind::kSilu;
    }

    [[nodiscard]] bool expects_turn(size_t layer) const {
        if (is("cohere2")) return config_.layers[layer].has_window;
        if (is("smollm3")) return (layer + 1) % 4 != 0;
        return true;
    }

    // Throws unless llama.cpp reads and uses the tensors of this model.
    void require_same_tensors() const {
        const bool has_bias = config_.has_projection_bias;
        if (is("gptneox"))
            require(has_bias && config_.has_output_bias,
                    "llama.cpp needs biases of attention in this family: `attention_bias`");
        if (is("gptneox") || is("phi2"))
            require(!config_.is_tied,
                    "llama.cpp needs an output layer of its own in this family: "
                    "`tie_word_embeddings`");
        if (is("starcoder2"))
            require(has_bias && config_.has_output_bias && config_.has_mlp_bias,
                    "llama.cpp needs biases in this family: `use_bias`");
        if (is("phi2"))
            require(config_.head_norm == HeadNormKind::kNone,
                    "llama.cpp has no norms of queries and keys in this family: `qk_layernorm`");
        if (is("falcon"))
            require(!has_bias && !config_.has_mlp_bias,
                    "llama.cpp reads no biases in this family: `bias`");
        if (is("ernie4_5") || is("arcee"))
            require(!config_.has_output_bias && !config_.has_mlp_bias,
                    "llama.cpp ignores the biases of this family");
        if (is("qwen2") || is("phi2") || is("phi3") || is("falcon") || is("gptneox") ||
            is("starcoder2"))
            require(config_.head_width * config_.heads == config_.width,
                    "llama.cpp needs heads that together are as wide as the model: `head_dim`");
        if (is("command-r"))
            require((config_.head_norm != HeadNormKind::kNone) == (config_.layers.size() >= 64),
                    "llama.cpp has norms of queries and keys if there are at least 64 layers: "
                    "`use_qk_norm`");
    }

    // Writes the constants by which the model multiplies attention, embeddings and outputs. For
    // families without such values in the file, checks that llama.cpp has the same constants.
    void write_scales() {
        const auto width = static_cast<double>(config_.head_width);
        double scale = 1 / std::sqrt(width);
        const bool is_27b = (is("gemma2") && config_.layers.size() == 46) ||
                            (is("gemma3") && config_.layers.size() == 62);
        if (is_27b)
            scale = 1 / std::sqrt(static_cast<double>(config_.width) /
                                  static_cast<double>(config_.heads));
        if (is("granite")) {
            add("attention.scale", config_.scale);
            add("embedding_scale", config_.embedding_scale);
            add("residual_scale", config_.residual_scale);
            add("logit_scale", 1 / config_.logit_scale);
            return;
        }
        require(std::abs(config_.scale / scale - 1) < 1e-6,
                "llama.cpp scales attention by the width of a head only");
        const double embedding = is_gemma() ? std::sqrt(static_cast<double>(config_.width)) : 1.0;
        require(
            std::abs(config_.embedding_scale / embedding - 1) < 1e-6 && config_.residual_scale == 1,
            "llama.cpp does not scale embeddings or layers in this family as this model does");
        if (is("command-r") || is("cohere2")) {
            add("logit_scale", config_.logit_scale);
        } else {
            require(config_.logit_scale == 1, "llama.cpp does not scale logits in this family");
        }
        if (is("gemma2")) {
            require(config_.score_cap > 0 && config_.logit_cap > 0,
                    "llama.cpp always caps scores and logits in this family");
            add("attn_logit_softcapping", config_.score_cap);
            add("final_logit_softcapping", config_.logit_cap);
        } else {
            require(config_.score_cap == 0 && config_.logit_cap == 0,
                    "llama.cpp does not cap scores or logits in this family");
        }
    }

    void write_windows() {
        const size_t pattern = is("gemma2") ? 2 : is("gemma3") ? 6 : is("cohere2") ? 4 : 0;
        for (size_t i = 0; pattern > 0 && i < config_.layers.size(); ++i)
            require(config_.layers[i].has_window == ((i + 1) % pattern != 0),
                    "llama.cpp limits attention to a window in other layers than this model does");
        if (config_.has_window() && (pattern > 0 || is("phi3")))
            add("attention.sliding_window", config_.window);
    }

    void write_experts() {
        const bool has_experts = config_.has_experts();
        for (const TransformerLayer& layer : config_.layers)
            require(layer.has_experts == has_experts,
                    "llama.cpp needs experts in all layers or in no layer");
        if (!has_experts) return;
        add("expert_count", config_.experts);
        add("expert_used_count", config_.experts_chosen);
        if (!is("llama") && !is("olmoe")) add("expert_feed_forward_length", config_.expert_width);
        if (config_.shared_expert_width > 0)
            add("expert_shared_feed_forward_length", config_.shared_expert_width);
        const bool expected = is("llama") || is("qwen3moe");
        require(config_.expert_weights_sum_to_one == expected,
                expected ? "llama.cpp makes the experts' weights sum to 1: `norm_topk_prob`"
                         : "llama.cpp leaves the experts' weights as they are: `norm_topk_prob`");
    }

    const TransformerConfig& config_;
    std::string name_;
    const std::string& place_;
    GgufValues& values_;
};

}  // namespace

std::vector<float> llama3_factors(const Rope& rope) {
    std::vector<float> factors;
    const auto context = static_cast<double>(rope.original_context);
    for (int64_t i = 0; i < rope.width; i += 2) {
        const double turn =
            1 / std::pow(rope.theta, static_cast<double>(i) / static_cast<double>(rope.width));
        const double length = 2 * std::numbers::pi / turn;
        double factor = 1;
        if (length > context / rope.low_frequency_factor) {
            factor = rope.factor;
        } else if (length > context / rope.high_frequency_factor) {
            const double smooth = (context / length - rope.low_frequency_factor) /
                                  (rope.high_frequency_factor - rope.low_frequency_factor);
            factor = 1 / ((1 - smooth) / rope.factor + smooth);
        }
        factors.push_back(static_cast<float>(factor));
    }
    return factors;
}

int64_t gguf_context(const TransformerConfig& config, const GgufFamily& family) {
    const std::string_view name = family.name;
    const bool keeps = name == "gemma2" || name == "gemma3" || name == "cohere2";
    return config.has_window() && !keeps ? std::min(config.context, config.window) : config.context;
}

std::vector<GgufFactors> add_config_values(const TransformerConfig& config,
                                           const GgufFamily& family, const std::string& place,
                                           GgufValues& values) {
    ConfigWriter writer(config, family, place, values);
    writer.write(gguf_context(config, family));
    return writer.write_rope();
}

}  // namespace dslaunch::storage

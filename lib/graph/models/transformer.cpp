#include "graph/models/transformer.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/check.h"
#include "graph/models/module_builder.h"

namespace dslaunch::graph {

namespace {

using storage::ActivationKind;
using storage::HeadNormKind;
using storage::NormKind;
using storage::ProjectionKind;
using storage::Rope;
using storage::RopeKind;
using storage::TransformerConfig;
using storage::TransformerLayer;

// ---- frequencies, in fp32 and in the order of transformers' operators, because the sines of late
// positions depend on the last bit ----

at::Tensor pair_exponents(const Rope& rope) {
    return at::arange(0, rope.width, 2, at::kLong).to(at::kFloat) / rope.width;
}

std::vector<double> as_numbers(const at::Tensor& turns) {
    const at::Tensor all = turns.to(at::kDouble).contiguous();
    const double* begin = all.const_data_ptr<double>();
    return {begin, begin + all.numel()};
}

class TransformerMaker {
  public:
    TransformerMaker(const TransformerConfig& config, const WeightOf& weight_of)
        : config_(config),
          weight_of_(weight_of),
          builder_(kTransformerSource, "transformer", config.names) {}

    Module model() {
        ModuleParts parts;
        const std::string decoder = name("decoder");
        parts.children.emplace_back(decoder, decoder_of(decoder));
        if (!config_.is_tied) {
            parts.children.emplace_back(
                name("head"),
                linear(name("head"), config_.width, config_.vocabulary, config_.has_head_bias));
        } else if (config_.has_head_bias) {
            ModuleParts bias;
            bias.parameters.emplace_back("bias",
                                         weight(name("head") + ".bias", {config_.vocabulary}));
            parts.children.emplace_back(name("head"), builder_.make("List", bias));
        }
        parts.constants = {{"is_tied", config_.is_tied},
                           {"has_head_bias", config_.has_head_bias},
                           {"scales_logits", config_.logit_scale != 1},
                           {"logit_scale", config_.logit_scale},
                           {"caps_logits", config_.logit_cap > 0},
                           {"logit_cap", config_.logit_cap},
                           {"vocabulary", config_.vocabulary},
                           {"context", config_.context}};
        return builder_.make("CausalLM", parts);
    }

    // Makes a decoder without embedding and norm, whose only layer is layer INDEX of the model.
    // REQUIRES: config_.layers contains only this layer.
    Module one_layer(int64_t index) {
        ModuleParts parts, layers;
        const std::string path = fmt::format("{}.{}", in(name("decoder"), "layers"), index);
        layers.children.emplace_back("0", layer(path, config_.layers.front()));
        parts.children.emplace_back(name("layers"), builder_.make("List", layers));
        parts.constants.emplace_back("is_one_layer", true);
        add_positions(parts);
        add_dropout(parts, config_.embedding_dropout);
        return builder_.make("Decoder", parts);
    }

  private:
    const std::string& name(const char* ours) const { return config_.names.at(ours); }
    std::string in(const std::string& path, const char* ours) const {
        return fmt::format("{}.{}", path, name(ours));
    }

    at::Tensor weight(const std::string& path, at::IntArrayRef sizes) const {
        return weight_of_(path, sizes).set_requires_grad(true);
    }

    Module decoder_of(const std::string& path) {
        ModuleParts parts;
        parts.children.emplace_back(
            name("embed"), embedding(in(path, "embed"), config_.vocabulary, config_.padding,
                                     config_.embedding_scale));
        if (config_.has_learned_positions)
            parts.children.emplace_back(name("positions"),
                                        embedding(in(path, "positions"), config_.context, -1, 1));
        ModuleParts layers;
        for (size_t i = 0; i < config_.layers.size(); ++i)
            layers.children.emplace_back(
                std::to_string(i),
                layer(fmt::format("{}.{}", in(path, "layers"), i), config_.layers[i]));
        parts.children.emplace_back(name("layers"), builder_.make("List", layers));
        parts.children.emplace_back(name("norm"), norm(in(path, "norm"), config_.width));
        parts.constants.emplace_back("is_one_layer", false);
        add_positions(parts);
        add_dropout(parts, config_.embedding_dropout);
        return builder_.make("Decoder", parts);
    }

    void add_positions(ModuleParts& parts) const {
        const Rope& rope = config_.rope;
        const storage::RotaryFrequencies turns = rotary_frequencies(config_);
        const bool differs =
            !turns.window.empty() &&
            (turns.window != turns.all || config_.window_rope.magnitude != rope.magnitude);
        const auto add = [&](const char* constant, const IValue& value) {
            parts.constants.emplace_back(constant, value);
        };
        add("has_learned_positions", config_.has_learned_positions);
        add("has_rotary", config_.has_rotary());
        add("turns_neighbours", config_.turns_neighbours);
        add("frequencies", turns.all);
        add("magnitude", rope.magnitude);
        const bool is_dynamic = config_.has_rotary() && rope.kind == RopeKind::kDynamic;
        const auto width = static_cast<double>(std::max<int64_t>(rope.width, 4));
        add("is_dynamic", is_dynamic);
        add("exponents", is_dynamic ? as_numbers(pair_exponents(rope)) : std::vector<double>{});
        add("theta", rope.theta);
        add("factor", rope.factor);
        add("growth", width / (width - 2));
        add("has_long_frequencies", !turns.late.empty());
        add("long_frequencies", turns.late);
        add("original_context", rope.original_context);
        add("has_window_frequencies", differs);
        add("window_frequencies", turns.window);
        add("window_magnitude", config_.window_rope.magnitude);
        add("writes_masks", config_.has_window() || writes_out_scores());
        add("window", config_.window);
    }

    static void add_dropout(ModuleParts& parts, double probability) {
        parts.constants.emplace_back("has_dropout", probability > 0);
        parts.constants.emplace_back("dropout", probability);
    }

    // Returns true if attention computes its scores with separate operators, and not with the fused
    // kernel. The fused kernel cannot cap scores, and its dropout draws different random numbers.
    bool writes_out_scores() const {
        return config_.score_cap > 0 || config_.attention_dropout > 0;
    }

    Module layer(const std::string& path, const TransformerLayer& what) {
        ModuleParts parts;
        const auto add_norm = [&](const char* ours) {
            parts.children.emplace_back(name(ours), norm(in(path, ours), config_.width));
        };
        const bool has_mlp_norm = config_.has_norms_before && !config_.has_shared_norm;
        if (config_.has_norms_before) add_norm("attention_norm");
        parts.children.emplace_back(name("attention"), attention(in(path, "attention"), what));
        if (config_.has_norms_after) add_norm("attention_post_norm");
        if (has_mlp_norm) add_norm("mlp_norm");
        parts.children.emplace_back(name("mlp"), what.has_experts
                                                     ? experts(in(path, "mlp"))
                                                     : mlp(in(path, "mlp"), config_.mlp_width));
        if (config_.has_norms_after) add_norm("mlp_post_norm");
        parts.constants = {{"has_attention_norm", config_.has_norms_before},
                           {"has_mlp_norm", has_mlp_norm},
                           {"has_norms_behind", config_.has_norms_after},
                           {"is_parallel", config_.is_parallel},
                           {"shares_norm", config_.has_shared_norm},
                           {"scales_residual", config_.residual_scale != 1},
                           {"residual_scale", config_.residual_scale},
                           {"has_window", what.has_window}};
        add_dropout(parts, config_.residual_dropout);
        return builder_.make("Layer", parts);
    }

    Module attention(const std::string& path, const TransformerLayer& what) {
        const int64_t head = config_.head_width;
        const int64_t queries = config_.heads * head, keys = config_.key_heads * head;
        ModuleParts parts;
        const auto add_linear = [&](const char* ours, int64_t inputs, int64_t outputs, bool bias) {
            parts.children.emplace_back(name(ours),
                                        linear_of_layer(in(path, ours), inputs, outputs, bias));
        };
        const bool separate = config_.projection == ProjectionKind::kSeparate;
        if (separate) {
            add_linear("query", config_.width, queries, config_.has_projection_bias);
            add_linear("key", config_.width, keys, config_.has_projection_bias);
            add_linear("value", config_.width, keys, config_.has_projection_bias);
        } else {
            add_linear("fused", config_.width, queries + 2 * keys, config_.has_projection_bias);
        }
        const HeadNormKind norms = config_.head_norm;
        if (norms != HeadNormKind::kNone) {
            parts.children.emplace_back(name("query_norm"),
                                        head_norm(in(path, "query_norm"), config_.heads));
            parts.children.emplace_back(name("key_norm"),
                                        head_norm(in(path, "key_norm"), config_.key_heads));
        }
        add_linear("output", queries, config_.width, config_.has_output_bias);
        const int64_t turned = (what.has_window ? config_.window_rope : config_.rope).width;
        const bool has_whole_norms = norms == HeadNormKind::kWhole;
        parts.constants = {{"heads", config_.heads},
                           {"key_heads", config_.key_heads},
                           {"head_width", head},
                           {"shares_keys", config_.heads != config_.key_heads},
                           {"is_fused", config_.projection == ProjectionKind::kFused},
                           {"is_fused_by_key", config_.projection == ProjectionKind::kFusedByKey},
                           {"group_width", (config_.heads / config_.key_heads + 2) * head},
                           {"caps_projections", config_.projection_cap > 0},
                           {"projection_cap", config_.projection_cap},
                           {"has_whole_norms", has_whole_norms},
                           {"has_head_norms", norms != HeadNormKind::kNone && !has_whole_norms},
                           {"turns", what.turns},
                           {"turns_neighbours", config_.turns_neighbours},
                           {"turns_a_part", turned < head},
                           {"turned_width", turned},
                           {"scale", config_.scale},
                           {"writes_out_scores", writes_out_scores()},
                           {"caps_scores", config_.score_cap > 0},
                           {"score_cap", config_.score_cap},
                           {"has_window", what.has_window}};
        add_dropout(parts, config_.attention_dropout);
        return builder_.make("Attention", parts);
    }

    Module mlp(const std::string& path, int64_t width) {
        ModuleParts parts;
        const auto add_linear = [&](const char* ours, int64_t inputs, int64_t outputs) {
            parts.children.emplace_back(
                name(ours), linear_of_layer(in(path, ours), inputs, outputs, config_.has_mlp_bias));
        };
        if (config_.is_gate_fused) {
            add_linear("gate_up", config_.width, 2 * width);
        } else {
            if (config_.is_gated) add_linear("gate", config_.width, width);
            add_linear("up", config_.width, width);
        }
        add_linear("down", width, config_.width);
        parts.constants = {{"is_gate_fused", config_.is_gate_fused},
                           {"is_gated", config_.is_gated},
                           {"width", width},
                           {"is_silu", config_.activation == ActivationKind::kSilu},
                           {"is_gelu", config_.activation == ActivationKind::kGelu},
                           {"is_gelu_tanh", config_.activation == ActivationKind::kGeluTanh},
                           {"is_quick_gelu", config_.activation == ActivationKind::kQuickGelu},
                           {"is_relu_squared", config_.activation == ActivationKind::kReluSquared}};
        return builder_.make("Mlp", parts);
    }

    Module experts(const std::string& path) {
        ModuleParts parts, list;
        parts.children.emplace_back(
            name("router"), linear(in(path, "router"), config_.width, config_.experts, false));
        for (int64_t i = 0; i < config_.experts; ++i)
            list.children.emplace_back(
                std::to_string(i),
                mlp(fmt::format("{}.{}", in(path, "experts"), i), config_.expert_width));
        parts.children.emplace_back(name("experts"), builder_.make("List", list));
        const bool has_shared = config_.shared_expert_width > 0;
        const bool has_gate = has_shared && config_.has_shared_expert_gate;
        if (has_shared)
            parts.children.emplace_back(
                name("shared_expert"), mlp(in(path, "shared_expert"), config_.shared_expert_width));
        if (has_gate)
            parts.children.emplace_back(
                name("shared_expert_gate"),
                linear(in(path, "shared_expert_gate"), config_.width, 1, false));
        parts.constants = {{"experts_chosen", config_.experts_chosen},
                           {"has_shared_expert", has_shared},
                           {"gates_shared_expert", has_gate},
                           {"weights_sum_to_one", config_.expert_weights_sum_to_one}};
        return builder_.make("Experts", parts);
    }

    // Makes a norm of the residual stream.
    Module norm(const std::string& path, int64_t width) {
        return norm(path, width, 0, config_.has_norm_bias);
    }

    // Makes a norm. HEADS: the number of rows if the weight is [heads, width]; 0 if it is [width].
    Module norm(const std::string& path, int64_t width, int64_t heads, bool bias) {
        ModuleParts parts;
        const std::vector<int64_t> sizes =
            heads == 0 ? std::vector{width} : std::vector{heads, width};
        if (config_.has_norm_weight)
            parts.parameters.emplace_back("weight", weight(path + ".weight", sizes));
        if (bias) parts.parameters.emplace_back("bias", weight(path + ".bias", {width}));
        const NormKind kind = config_.norm;
        parts.constants = {
            {"is_layer_norm", kind == NormKind::kLayer || kind == NormKind::kLayerOfOne},
            {"is_of_one", kind == NormKind::kLayerOfOne || kind == NormKind::kRmsOfOne},
            {"is_by_head", heads > 0},
            {"width", width},
            {"epsilon", config_.norm_epsilon}};
        return builder_.make("Norm", parts);
    }

    // Makes a norm of queries, or of keys.
    Module head_norm(const std::string& path, int64_t heads) {
        const int64_t width = config_.head_width;
        const bool bias = config_.has_head_norm_bias;
        switch (config_.head_norm) {
            case HeadNormKind::kEach:
                return norm(path, width, heads, bias);
            case HeadNormKind::kWhole:
                return norm(path, heads * width, 0, bias);
            case HeadNormKind::kList:
                break;
            case HeadNormKind::kShared:
            case HeadNormKind::kNone:
                return norm(path, width, 0, bias);
        }
        ModuleParts parts, list;
        for (int64_t i = 0; i < heads; ++i)
            list.children.emplace_back(
                std::to_string(i),
                norm(fmt::format("{}.{}", in(path, "norms"), i), width, 0, bias));
        parts.children.emplace_back(name("norms"), builder_.make("List", list));
        parts.constants = {{"width", width}, {"epsilon", config_.norm_epsilon}};
        return builder_.make("HeadNorms", parts);
    }

    Module embedding(const std::string& path, int64_t rows, int64_t padding, double scale) {
        ModuleParts parts;
        parts.parameters = {{"weight", weight(path + ".weight", {rows, config_.width})}};
        parts.constants = {{"padding", padding}, {"is_scaled", scale != 1}, {"scale", scale}};
        return builder_.make("Embedding", parts);
    }

    Module linear_of_layer(const std::string& path, int64_t inputs, int64_t outputs, bool bias) {
        if (!config_.is_transposed) return linear(path, inputs, outputs, bias);
        ModuleParts parts;
        parts.parameters = {{"weight", weight(path + ".weight", {inputs, outputs})},
                            {"bias", weight(path + ".bias", {outputs})}};
        return builder_.make("TransposedLinear", parts);
    }

    Module linear(const std::string& path, int64_t inputs, int64_t outputs, bool bias) {
        ModuleParts parts;
        parts.parameters = {{"weight", weight(path + ".weight", {outputs, inputs})}};
        if (bias) parts.parameters.emplace_back("bias", weight(path + ".bias", {outputs}));
        return builder_.make("Linear", parts);
    }

    const TransformerConfig& config_;
    const WeightOf& weight_of_;
    ModuleBuilder builder_;
};

at::Tensor plain(const Rope& rope) {
    return 1.0 / at::pow(rope.theta, pair_exponents(rope));
}

at::Tensor llama3(const Rope& rope) {
    const auto context = static_cast<double>(rope.original_context);
    const double longest = context / rope.low_frequency_factor;
    const double shortest = context / rope.high_frequency_factor;
    const at::Tensor turns = plain(rope);
    const at::Tensor wavelength = 2 * std::numbers::pi / turns;
    const at::Tensor scaled = at::where(wavelength > longest, turns / rope.factor, turns);
    const at::Tensor smooth = (context / wavelength - rope.low_frequency_factor) /
                              (rope.high_frequency_factor - rope.low_frequency_factor);
    const at::Tensor between = (1 - smooth) * scaled / rope.factor + smooth * scaled;
    const at::Tensor is_between = at::logical_and(wavelength >= shortest, wavelength <= longest);
    return at::where(is_between, between, scaled);
}

// Returns the index of the pair of numbers that the rotary embedding turns by ROTATIONS full
// circles within the original context. The index is not rounded.
double pair_of_rotations(const Rope& rope, double rotations) {
    const auto context = static_cast<double>(rope.original_context);
    return static_cast<double>(rope.width) *
           std::log(context / (rotations * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
}

at::Tensor yarn(const Rope& rope) {
    double low = pair_of_rotations(rope, rope.beta_fast);
    double high = pair_of_rotations(rope, rope.beta_slow);
    if (rope.truncate) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(rope.width - 1));
    if (low == high) high += 0.001;
    const at::Tensor powers = at::pow(rope.theta, pair_exponents(rope));
    const at::Tensor ramp =
        at::clamp((at::arange(rope.width / 2, at::kFloat) - low) / (high - low), 0, 1);
    const at::Tensor kept = 1 - ramp;
    return 1.0 / (rope.factor * powers) * (1 - kept) + 1.0 / powers * kept;
}

at::Tensor with_factors(const Rope& rope, const std::vector<double>& factors) {
    return 1.0 / (at::tensor(factors, at::kFloat) * at::pow(rope.theta, pair_exponents(rope)));
}

// Returns ROPE's frequencies. Some formulas have separate frequencies for sequences beyond the
// original context; IS_LONG selects these.
at::Tensor frequencies(const Rope& rope, bool is_long) {
    switch (rope.kind) {
        case RopeKind::kDefault:
        case RopeKind::kDynamic:  // for sequences within the original context
            return plain(rope);
        case RopeKind::kLinear:
            return plain(rope) / rope.factor;
        case RopeKind::kLlama3:
            return llama3(rope);
        case RopeKind::kYarn:
            return yarn(rope);
        case RopeKind::kProportional:
            return at::where(at::arange(rope.width / 2) < rope.turning_pairs, plain(rope), 0) /
                   rope.factor;
        case RopeKind::kLong:
            return with_factors(rope, is_long ? rope.long_factors : rope.short_factors);
    }
    return {};
}

}  // namespace

storage::RotaryFrequencies rotary_frequencies(const TransformerConfig& config) {
    storage::RotaryFrequencies made;
    if (!config.has_rotary()) return made;
    made.all = as_numbers(frequencies(config.rope, false));
    if (config.rope.kind == RopeKind::kLong) {
        made.late = as_numbers(frequencies(config.rope, true));
        DSL_CHECK(config.window_rope.kind == RopeKind::kLong,
                  "if one layer uses the rotary formula longrope, all layers must use longrope, "
                  "but the window layers do not");
    } else if (config.has_window() && config.rope.kind != RopeKind::kDynamic) {
        made.window = as_numbers(frequencies(config.window_rope, false));
    }
    return made;
}

Module make_transformer(const TransformerConfig& config, const WeightOf& weight_of) {
    return TransformerMaker(config, weight_of).model();
}

Module make_transformer_layer(const TransformerConfig& config, int64_t layer,
                              const WeightOf& weight_of) {
    TransformerConfig alone = config;
    alone.layers = {config.layers.at(static_cast<size_t>(layer))};
    alone.has_learned_positions = false;  // the first layer's inputs contain them
    Module made = TransformerMaker(alone, weight_of).one_layer(layer);
    made.eval();
    return made;
}

}  // namespace dslaunch::graph

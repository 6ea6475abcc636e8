// Makes a config.json from values.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "storage/gguf/block_numbers.h"
#include "storage/gguf_model/gguf_config.h"

namespace dslaunch::storage {
namespace {

using Json = nlohmann::ordered_json;

// Reads one model's values.
class ConfigReader {
  public:
    explicit ConfigReader(const GgufContent& file) : file_(file), values_(file.metadata) {
        name_ = values_.text("general.architecture");
        const bool has_experts = integer_or("expert_count", 0) > 0;
        for (const GgufFamily& family : gguf_families())
            if (name_ == family.name && family_ == nullptr &&
                (name_ != "llama" ||
                 has_experts == (std::string_view(family.model_type) == "mixtral")))
                family_ = &family;
        if (family_ == nullptr) {
            std::vector<std::string> known;
            for (const GgufFamily& family : gguf_families())
                if (known.empty() || known.back() != family.name) known.emplace_back(family.name);
            values_.refuse("general.architecture",
                           fmt::format("is `{}`, which is not supported; supported are {}",
                                       printable(name_), join(known, ", ")));
        }
    }

    [[nodiscard]] std::string text(std::optional<DType> wanted) {
        refuse_other_values();
        json_["architectures"] = Json::array({family_->architecture});
        json_["model_type"] = family_->model_type;
        if (is("gpt2") || is("starcoder")) {
            gpt();
        } else {
            sizes();
            family();
        }
        json_["vocab_size"] = vocabulary();
        json_["tie_word_embeddings"] = file_.find("output.weight") == nullptr;
        const DType type = wanted.value_or(dtype());
        json_["torch_dtype"] = type == DType::kBF16  ? "bfloat16"
                               : type == DType::kF16 ? "float16"
                                                     : "float32";
        return json_.dump(2) + "\n";
    }

  private:
    [[nodiscard]] bool is(std::string_view name) const { return name == name_; }
    std::string key(std::string_view name) const { return fmt::format("{}.{}", name_, name); }
    int64_t integer(std::string_view name) const { return values_.integer(key(name)); }
    int64_t integer_or(std::string_view name, int64_t otherwise) const {
        return values_.integer_or(key(name), otherwise);
    }
    double number(std::string_view name) const { return short_number(values_.number(key(name))); }
    double number_or(std::string_view name, double otherwise) const {
        return values_.has(key(name)) ? number(name) : otherwise;
    }

    // Returns the number with the fewest digits that rounds to NUMBER in fp32: 1e-5, not
    // 9.9999997e-6.
    static double short_number(double number) {
        return std::stod(fmt::format("{}", static_cast<float>(number)));
    }

    [[nodiscard]] bool has(const char* tensor) const { return file_.find(tensor) != nullptr; }

    // Returns the number of rows of the embedding.
    [[nodiscard]] int64_t vocabulary() const {
        const GgufTensor* const table = file_.find("token_embd.weight");
        if (table == nullptr || table->shape.size() != 2)
            fail(ExitCode::kInput, "{}: has no matrix token_embd.weight: it is no language model",
                 printable(values_.path()));
        return table->shape.front();
    }

    // Returns the type in which a decoder keeps the matrices: the largest tensor's type, or fp16 if
    // this tensor is quantized. A quantized number is the product of a small integer and fp16
    // numbers. From 2^-14 to 65504, fp16 stores it with a relative error of at most 2^-11.
    [[nodiscard]] DType dtype() const {
        const GgufForm form = std::ranges::max(file_.tensors, {}, [](const GgufTensor& tensor) {
                                  return tensor.bytes.size();
                              }).form;
        if (form == GgufForm::kBf16) return DType::kBF16;
        return form == GgufForm::kF32 || form == GgufForm::kF64 ? DType::kF32 : DType::kF16;
    }

    void gpt() {
        json_["n_embd"] = integer("embedding_length");
        json_["n_head"] = integer("attention.head_count");
        json_["n_layer"] = integer("block_count");
        json_["n_positions"] = integer("context_length");
        json_["n_inner"] = integer("feed_forward_length");
        json_["layer_norm_epsilon"] = number("attention.layer_norm_epsilon");
        json_["activation_function"] = "gelu_pytorch_tanh";
        if (is("starcoder")) json_["multi_query"] = integer_or("attention.head_count_kv", 1) == 1;
    }

    [[nodiscard]] int64_t head_width() const {
        const int64_t heads = integer("attention.head_count");
        constexpr int64_t kMost = int64_t{1} << 20;
        if (heads < 1 || heads > kMost)
            values_.refuse(key("attention.head_count"), fmt::format("must be from 1 to {}", kMost));
        const int64_t width =
            integer_or("attention.key_length", integer("embedding_length") / heads);
        if (width < 1 || width > kMost)
            values_.refuse(key("attention.key_length"), fmt::format("must be from 1 to {}", kMost));
        return width;
    }

    void sizes() {
        const int64_t width = integer("embedding_length"), heads = integer("attention.head_count");
        json_["hidden_size"] = width;
        const char* const mlp = is("falcon") ? "ffn_hidden_size" : "intermediate_size";
        json_[mlp] = integer("feed_forward_length");
        json_["num_hidden_layers"] = integer("block_count");
        json_["num_attention_heads"] = heads;
        const int64_t keys = integer_or("attention.head_count_kv", heads);
        if (!is("gptneox")) json_[is("falcon") ? "num_kv_heads" : "num_key_value_heads"] = keys;
        json_["max_position_embeddings"] = integer("context_length");
        if (integer_or("attention.value_length", head_width()) != head_width())
            values_.refuse(key("attention.value_length"),
                           "differs from key_length, which is not supported");
        const bool always = is("gemma") || is("gemma2") || is("gemma3") || is("qwen3") ||
                            is("glm4") || is("seed_oss") || is("ernie4_5");
        if (heads < 1 || always || head_width() * heads != width) json_["head_dim"] = head_width();
        if (!is("olmo")) json_[epsilon_key()] = epsilon();
        rope();
    }

    [[nodiscard]] const char* epsilon_key() const {
        if (is("starcoder2")) return "norm_epsilon";
        if (is("nemotron")) return "norm_eps";
        if (is("falcon")) return "layer_norm_epsilon";
        if (values_.has(key("attention.layer_norm_rms_epsilon"))) return "rms_norm_eps";
        return "layer_norm_eps";
    }

    [[nodiscard]] double epsilon() const {
        return values_.has(key("attention.layer_norm_rms_epsilon"))
                   ? number("attention.layer_norm_rms_epsilon")
                   : number("attention.layer_norm_epsilon");
    }

    void rope() {
        json_["rope_theta"] = number_or("rope.freq_base", 10000);
        const int64_t width = integer_or("rope.dimension_count", head_width());
        double part = static_cast<double>(width) / static_cast<double>(head_width());
        // A decoder multiplies `part` by the width of a head and rounds down, so the result must
        // not be below WIDTH.
        if (static_cast<int64_t>(static_cast<double>(head_width()) * part) < width)
            part = std::nextafter(part, 2.0);
        const bool has_part =
            is("phi2") || is("phi3") || is("stablelm") || is("glm4") || is("nemotron");
        if (is("gptneox")) {
            json_["rotary_pct"] = part;
        } else if (has_part) {
            json_["partial_rotary_factor"] = part;
        } else if (width != head_width()) {
            values_.refuse(key("rope.dimension_count"),
                           "must be the width of a head in this model family");
        }
        scaling(width);
    }

    // Reads the scaling of positions. Without a type, llama.cpp takes `linear`.
    void scaling(int64_t width) {
        const std::string type = values_.text_or(key("rope.scaling.type"), "linear");
        double factor = number_or("rope.scaling.factor", number_or("rope.scale_linear", 1));
        if (factor == 0 || type == "none") factor = 1;
        const double attention = number_or("rope.scaling.attn_factor", 1);
        const bool is_llama3 = has("rope_freqs.weight");
        const bool is_long = has("rope_factors_long.weight");
        if ((is_llama3 || is_long) && factor != 1)
            values_.refuse(key("rope.scaling.factor"),
                           "is not supported together with a tensor of rope factors");
        if (attention != 1 && !is_long && type != "yarn")
            values_.refuse(key("rope.scaling.attn_factor"),
                           "is supported only with `yarn` or with rope_factors_long.weight");
        if (is_llama3) {
            json_["rope_scaling"] = llama3_or_long(factors("rope_freqs.weight", width));
        } else if (is_long) {
            json_["original_max_position_embeddings"] = original_context();
            json_["rope_scaling"] = {{"rope_type", "longrope"},
                                     {"short_factor", factors("rope_factors_short.weight", width)},
                                     {"long_factor", factors("rope_factors_long.weight", width)},
                                     {"attention_factor", attention}};
        } else if (type == "yarn") {
            yarn(factor, attention);
        } else if (type == "linear" && factor != 1) {
            json_["rope_scaling"] = {{"rope_type", "linear"}, {"factor", factor}};
        } else if (type != "linear" && type != "none") {
            values_.refuse(key("rope.scaling.type"),
                           fmt::format("`{}` is not supported", printable(type)));
        }
    }

    void yarn(double factor, double attention) {
        // A share below 0 stands for llama.cpp's default, which is 1 in this type.
        const double share = number_or("rope.scaling.yarn_ext_factor", 1);
        if (share >= 0 && share != 1)
            values_.refuse(key("rope.scaling.yarn_ext_factor"),
                           "must be 1: other values are not supported");
        for (const auto& [name, idle] : {std::pair("rope.scaling.yarn_log_multiplier", 0.0),
                                         std::pair("rope.scaling.yarn_attn_factor", 1.0)})
            if (number_or(name, idle) != idle)
                values_.refuse(key(name),
                               fmt::format("must be {}: other values are not supported", idle));
        json_["rope_scaling"] = {{"rope_type", "yarn"},
                                 {"factor", factor},
                                 {"original_max_position_embeddings", original_context()}};
        Json& made = json_["rope_scaling"];
        if (attention != 1)
            made["attention_factor"] = attention * (factor > 1 ? 1 + 0.1 * std::log(factor) : 1);
        const std::pair<const char*, const char*> betas[] = {
            {"rope.scaling.yarn_beta_fast", "beta_fast"},
            {"rope.scaling.yarn_beta_slow", "beta_slow"}};
        for (const auto& [name, field] : betas)
            if (values_.has(key(name))) made[field] = number(name);
    }

    // Throws if a value asks for a computation that the model's family does not have.
    void refuse_other_values() const {
        // A key, the number with which it changes nothing, and the families that read it.
        struct Idle {
            const char* name;
            double number;
            std::vector<std::string_view> readers;
        };
        const Idle all[] = {
            {"attention.scale", 0, {"granite"}},
            {"attn_logit_softcapping", 0, {"gemma2"}},
            {"final_logit_softcapping", 0, {"gemma2"}},
            {"logit_scale", 0, {"granite", "command-r", "cohere2"}},
            {"residual_scale", 0, {"granite"}},
            {"embedding_scale", 0, {"granite"}},
            {"expert_weights_scale", 0, {}},
            {"attention.clamp_kqv", 0, {"olmo"}},
            {"attention.max_alibi_bias", 0, {}},
        };
        for (const auto& [name, idle, readers] : all) {
            if (std::ranges::find(readers, name_) != readers.end()) continue;
            const double held = number_or(name, idle);
            if (held != idle && held != 1)
                values_.refuse(key(name),
                               fmt::format("is {}, which is not supported in `{}`", held, name_));
        }
        const std::pair<const char*, bool> flags[] = {{"attention.causal", true},
                                                      {"rope.scaling.finetuned", true}};
        for (const auto& [name, idle] : flags) {
            const bool matters = name == std::string_view("attention.causal") || is("granite");
            if (matters && values_.flag_or(key(name), idle) != idle)
                values_.refuse(key(name), fmt::format("is {}, which is not supported", !idle));
        }
        // Both 1 and 0 stand for a softmax over the experts.
        if (const int64_t gating = integer_or("expert_gating_func", 1); gating != 0 && gating != 1)
            values_.refuse(key("expert_gating_func"),
                           fmt::format("is {}, which is not supported", gating));
        if (values_.has(key("rope.dimension_sections")))
            for (const int64_t part : values_.integers(key("rope.dimension_sections")))
                if (part != 0)
                    values_.refuse(key("rope.dimension_sections"),
                                   "has positions in several dimensions, which are not supported");
        if (is("gemma3") && values_.has(key("attention.sliding_window_pattern")) &&
            values_.integers(key("attention.sliding_window_pattern")) != gemma3_pattern())
            values_.refuse(
                key("attention.sliding_window_pattern"),
                "must be 6 (no window in every sixth layer): other values are not supported");
    }

    // Returns the required value of sliding_window_pattern, for which every sixth layer has no
    // window. The value is {6}, or one flag per layer if the file lists layers.
    [[nodiscard]] std::vector<int64_t> gemma3_pattern() const {
        const auto held = values_.integers(key("attention.sliding_window_pattern"));
        if (held.size() == 1) return {6};
        std::vector<int64_t> expected;
        for (size_t i = 0; i < held.size(); ++i) expected.push_back((i + 1) % 6 != 0 ? 1 : 0);
        return expected;
    }

    [[nodiscard]] int64_t original_context() const {
        return integer_or("rope.scaling.original_context_length", integer("context_length"));
    }

    [[nodiscard]] std::vector<float> factors(const char* tensor, int64_t width) const {
        const GgufTensor* const found = file_.find(tensor);
        if (found == nullptr || found->form != GgufForm::kF32 || found->shape.size() != 1 ||
            found->shape.front() != width / 2)
            fail(ExitCode::kInput, "{}: the tensor `{}` must have {} numbers in F32",
                 printable(values_.path()), tensor, width / 2);
        std::vector<float> numbers(static_cast<size_t>(width / 2));
        gguf_dequantize(found->form, found->bytes, numbers);
        for (const float number : numbers)
            if (!(number > 0) || !std::isfinite(number))
                fail(ExitCode::kInput, "{}: the tensor `{}` must have numbers above 0",
                     printable(values_.path()), tensor);
        return numbers;
    }

    // Returns the rope for FACTORS. The file has the factors, but not the formula. If the formula
    // of `llama3` with its usual parameters gives FACTORS, returns a rope of type `llama3`.
    // Otherwise returns a rope that lists FACTORS.
    [[nodiscard]] Json llama3_or_long(const std::vector<float>& factors) const {
        Rope usual;
        usual.kind = RopeKind::kLlama3;
        usual.theta = number_or("rope.freq_base", 10000);
        usual.width = 2 * std::ssize(factors);
        usual.factor = static_cast<double>(std::ranges::max(factors));
        usual.low_frequency_factor = 1;
        usual.high_frequency_factor = 4;
        usual.original_context = 8192;
        const auto is_near = [](float expected, float held) {
            return std::abs(static_cast<double>(expected) / static_cast<double>(held) - 1) < 1e-4;
        };
        if (std::ranges::equal(llama3_factors(usual), factors, is_near))
            return {{"rope_type", "llama3"},
                    {"factor", usual.factor},
                    {"low_freq_factor", usual.low_frequency_factor},
                    {"high_freq_factor", usual.high_frequency_factor},
                    {"original_max_position_embeddings", usual.original_context}};
        return {{"rope_type", "longrope"},
                {"short_factor", factors},
                {"long_factor", factors},
                {"attention_factor", 1.0},
                {"original_max_position_embeddings", integer("context_length")}};
    }

    // Sets the fields that only some families have.
    void family() {
        const bool has_bias = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
        if (is("stablelm")) {
            json_["use_qkv_bias"] = has_bias;
            json_["use_parallel_residual"] = values_.flag_or(key("use_parallel_residual"), false);
            json_["qk_layernorm"] = has("blk.0.attn_q_norm.weight");
        } else if (is("gptneox")) {
            json_["attention_bias"] = has_bias;
            json_["use_parallel_residual"] = values_.flag_or(key("use_parallel_residual"), true);
        } else if (is("starcoder2")) {
            json_["use_bias"] = has_bias;
        } else if (is("ernie4_5")) {
            json_["use_bias"] = has("blk.0.ffn_up.bias");
        } else if (is("falcon")) {
            falcon(has_bias);
        } else {
            json_["attention_bias"] = has_bias;
            if (is("llama") || is("granite") || is("arcee") || is("smollm3") || is("nemotron"))
                json_["mlp_bias"] = has("blk.0.ffn_up.bias");
        }
        if (is("seed_oss")) json_["attention_out_bias"] = has("blk.0.attn_output.bias");
        if (is("phi2")) json_["qk_layernorm"] = false;
        if (is("command-r") || is("cohere2")) json_["logit_scale"] = number("logit_scale");
        if (is("command-r")) json_["use_qk_norm"] = has("blk.0.attn_q_norm.weight");
        if (is("olmo") && values_.has(key("attention.clamp_kqv")) &&
            number("attention.clamp_kqv") > 0)
            json_["clip_qkv"] = number("attention.clamp_kqv");
        if (is("granite")) {
            // llama.cpp does not scale if the value is 0 or missing.
            const auto scale = [&](const char* name, double otherwise) {
                const double held = number_or(name, 0);
                return held == 0 ? otherwise : held;
            };
            json_["attention_multiplier"] =
                scale("attention.scale", 1 / std::sqrt(static_cast<double>(head_width())));
            json_["embedding_multiplier"] = scale("embedding_scale", 1);
            json_["residual_multiplier"] = scale("residual_scale", 1);
            json_["logits_scaling"] = number("logit_scale");
        }
        if (name_.starts_with("gemma")) gemma();
        if (is("cohere2") || is("phi3"))
            if (const int64_t window = integer_or("attention.sliding_window", 0); window > 0)
                json_["sliding_window"] = window;
        if (integer_or("expert_count", 0) > 0) experts();
    }

    void falcon(bool has_bias) {
        const bool has_two_norms = has("blk.0.attn_norm_2.weight");
        json_["bias"] = has_bias;
        json_["parallel_attn"] = true;
        json_["new_decoder_architecture"] = has_two_norms;
        json_["multi_query"] = integer_or("attention.head_count_kv", 1) == 1;
        json_["alibi"] = false;
    }

    void gemma() {
        json_["hidden_activation"] = "gelu_pytorch_tanh";
        if (is("gemma")) return;
        const int64_t layers = integer("block_count");
        const bool is_27b = (is("gemma2") && layers == 46) || (is("gemma3") && layers == 62);
        json_["query_pre_attn_scalar"] =
            is_27b ? integer("embedding_length") / integer("attention.head_count") : head_width();
        json_["sliding_window"] = integer("attention.sliding_window");
        if (is("gemma2")) {
            json_["attn_logit_softcapping"] = number_or("attn_logit_softcapping", 50);
            json_["final_logit_softcapping"] = number_or("final_logit_softcapping", 30);
        } else {
            json_["rope_local_base_freq"] = number_or("rope.freq_base_swa", 10000);
            json_["sliding_window_pattern"] = 6;
        }
    }

    void experts() {
        const int64_t experts = integer("expert_count");
        json_[is("llama") ? "num_local_experts" : "num_experts"] = experts;
        json_["num_experts_per_tok"] = integer("expert_used_count");
        if (is("qwen2moe") || is("qwen3moe")) {
            const GgufTensor* const gate = file_.find("blk.0.ffn_gate_exps.weight");
            const int64_t width =
                integer_or("expert_feed_forward_length",
                           gate != nullptr && gate->shape.size() == 3 ? gate->shape[1] : 0);
            json_["moe_intermediate_size"] = width;
            json_["norm_topk_prob"] = is("qwen3moe");
        }
        if (is("qwen2moe")) {
            const GgufTensor* const gate = file_.find("blk.0.ffn_gate_shexp.weight");
            json_["shared_expert_intermediate_size"] =
                integer_or("expert_shared_feed_forward_length",
                           gate != nullptr && gate->shape.size() == 2 ? gate->shape[0] : 0);
            json_["qkv_bias"] = has("blk.0.attn_q.bias");
        }
        if (is("olmoe")) json_["norm_topk_prob"] = false;
    }

    const GgufContent& file_;
    const GgufMetadata& values_;
    std::string name_;
    const GgufFamily* family_ = nullptr;
    Json json_;
};

}  // namespace

std::string config_of_gguf(const GgufContent& file, std::optional<DType> dtype) {
    return ConfigReader(file).text(dtype);
}

}  // namespace dslaunch::storage

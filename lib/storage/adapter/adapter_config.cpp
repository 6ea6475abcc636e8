#include "storage/adapter/adapter_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "base/error.h"
#include "base/text.h"
#include "base/text/json.h"

namespace dslaunch::storage {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kRankMax = 1 << 20;

class Fields {
  public:
    Fields(const std::string& path, const Json& json) : path_(path), json_(json) {}

    [[noreturn]] void refuse(std::string_view name, std::string_view why) const {
        fail(ExitCode::kInput, "{}: `{}` {}", printable(path_), printable(name), why);
    }
    // Returns null if the field is missing or null.
    [[nodiscard]] const Json* find(const char* name) const {
        const auto found = json_.find(name);
        return found == json_.end() || found->is_null() ? nullptr : &*found;
    }
    [[nodiscard]] double number(const char* name, double otherwise) const {
        const Json* const value = find(name);
        if (value == nullptr) return otherwise;
        if (!value->is_number()) refuse(name, "is not a number");
        return value->get<double>();
    }
    [[nodiscard]] bool flag(const char* name) const {
        const Json* const value = find(name);
        if (value != nullptr && !value->is_boolean()) refuse(name, "is neither true nor false");
        return value != nullptr && value->get<bool>();
    }
    [[nodiscard]] std::string text(const char* name) const {
        const Json* const value = find(name);
        if (value != nullptr && !value->is_string()) refuse(name, "is not a string");
        return value == nullptr ? "" : value->get<std::string>();
    }
    [[nodiscard]] std::vector<std::string> texts(const char* name) const {
        const Json* const value = find(name);
        if (value == nullptr) return {};
        if (value->is_string()) return {value->get<std::string>()};
        if (!value->is_array()) refuse(name, "is not a list of names");
        std::vector<std::string> all;
        for (const Json& item : *value) {
            if (!item.is_string()) refuse(name, "is not a list of names");
            all.push_back(item.get<std::string>());
        }
        return all;
    }
    [[nodiscard]] std::vector<int64_t> integers(const char* name, const Json& value) const {
        std::vector<int64_t> all;
        for (const Json& item : value.is_array() ? value : Json::array({value})) {
            if (!item.is_number_integer() || item.get<int64_t>() < 0)
                refuse(name, "must contain only whole numbers of at least 0");
            all.push_back(item.get<int64_t>());
        }
        return all;
    }
    [[nodiscard]] int64_t rank(const char* name, double value) const {
        if (!(value >= 1 && value <= kRankMax) || value != std::floor(value))
            refuse(name, "is not a valid rank of an adapter");
        return static_cast<int64_t>(value);
    }
    [[nodiscard]] NamedNumbers named_numbers(const char* name) const {
        NamedNumbers numbers;
        const Json* const value = find(name);
        if (value == nullptr) return numbers;
        if (!value->is_object()) refuse(name, "must be an object that maps names to numbers");
        for (const auto& [pattern, number] : value->items()) {
            if (!number.is_number() || !std::isfinite(number.get<double>()))
                refuse(name, "must be an object that maps names to numbers");
            if (!is_pattern(pattern))
                refuse(name, fmt::format("contains `{}`, a regular expression that is not "
                                         "supported: write the names of the layers",
                                         printable(pattern)));
            numbers.emplace_back(pattern, number.get<double>());
        }
        return numbers;
    }
    // Returns the layers that the field names; an empty rule if the field is an expression that
    // only Python can read.
    [[nodiscard]] NameRule names(const char* name) const {
        const Json* const value = find(name);
        if (value == nullptr || !value->is_string()) return {std::nullopt, texts(name)};
        std::string pattern = value->get<std::string>();
        return is_pattern(pattern) ? NameRule{std::move(pattern), {}} : NameRule{};
    }
    [[nodiscard]] const Json& json() const { return json_; }

  private:
    static bool is_pattern(const std::string& pattern) {
        try {
            require_pattern(pattern);
            return true;
        } catch (const std::regex_error&) {
            return false;
        }
    }

    const std::string& path_;
    const Json& json_;
};

// Returns true for null, false and empty values, which switch nothing on.
bool is_off(const Json& value) {
    return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
           (value.is_structured() && value.empty());
}

struct RefusedField {
    const char* name;
    const char* why;
};
constexpr std::array<RefusedField, 9> kRefused = {
    {{"alora_invocation_tokens",
      "makes the adapter an activated LoRA, which acts only from its invocation tokens on, so it "
      "cannot be merged: use the adapter with PEFT"},
     {"layer_replication",
      "repeats layers, so the adapter belongs to a deeper model: build that model, and train or "
      "save the adapter with it"},
     {"megatron_config",
      "is for Megatron layers: first convert the model and the adapter to Hugging Face's names"},
     {"use_qalora",
      "averages inputs in groups (QA-LoRA): let the program that made it merge it into "
      "the model"},
     {"use_bdlora", "stores blocks of matrices (BD-LoRA): merge it with PEFT (merge_and_unload)"},
     {"arrow_config", "chooses among adapters for each token (Arrow): use it with PEFT"},
     {"monteclora_config", "draws weights at random (MonteCLoRA): merge it with PEFT"},
     {"kasa_config",
      "removes singular values from the base and adds a diagonal to each pair (KaSA): merge it "
      "with PEFT (merge_and_unload)"},
     {"enable_lora", "adapts parts of a fused layer (PEFT 0.2): merge it with that release"}}};

// Fields that do not change a trained adapter's results, and all fields that are read below.
constexpr std::array<const char*, 37> kKnown = {"peft_type",
                                                "task_type",
                                                "base_model_name_or_path",
                                                "revision",
                                                "inference_mode",
                                                "auto_mapping",
                                                "peft_version",
                                                "megatron_core",
                                                "loftq_config",
                                                "eva_config",
                                                "corda_config",
                                                "lora_ga_config",
                                                "velora_config",
                                                "qalora_group_size",
                                                "runtime_config",
                                                "merge_weights",
                                                "r",
                                                "lora_alpha",
                                                "lora_dropout",
                                                "use_rslora",
                                                "fan_in_fan_out",
                                                "bias",
                                                "lora_bias",
                                                "target_modules",
                                                "exclude_modules",
                                                "modules_to_save",
                                                "init_lora_weights",
                                                "use_dora",
                                                "layers_to_transform",
                                                "layers_pattern",
                                                "rank_pattern",
                                                "alpha_pattern",
                                                "target_parameters",
                                                "trainable_token_indices",
                                                "ensure_weight_tying",
                                                "modules_to_tie",
                                                "target_modules_to_tie"};

void refuse_unknown(const Fields& fields) {
    for (const RefusedField& one : kRefused) {
        const Json* const value = fields.find(one.name);
        if (value != nullptr && !is_off(*value)) fields.refuse(one.name, one.why);
    }
    for (const auto& [name, value] : fields.json().items()) {
        const bool is_switch = value.is_boolean() || value.is_structured();
        if (!is_switch || is_off(value) || std::ranges::find(kKnown, name) != kKnown.end())
            continue;
        fields.refuse(
            name,
            "is not a field of PEFT 0.21 and is switched on, so its effect is unknown: merge the "
            "adapter with the release that made it, or remove the field if it changes nothing");
    }
}

void require_lora(const Fields& fields) {
    if (fields.find("fine_tune_type") != nullptr || fields.find("lora_parameters") != nullptr)
        fields.refuse("fine_tune_type",
                      "comes from MLX, which stores adapters transposed: fuse the adapter with MLX "
                      "(mlx_lm.fuse --de-quantize), and use the resulting model");
    const std::string type = fields.text("peft_type");
    if (type.empty())
        fields.refuse("peft_type", "is missing: this is not an adapter_config.json of PEFT");
    if (type != "LORA")
        fields.refuse("peft_type", fmt::format("is {}, not LORA: merge it with PEFT "
                                               "(merge_and_unload), and use the merged model",
                                               printable(type)));
    const std::string task = fields.text("task_type");
    if (task == "SEQ_CLS" || task == "TOKEN_CLS" || task == "QUESTION_ANS")
        fields.refuse("task_type", fmt::format("is {}: a classifier's adapter has its own head, "
                                               "and only adapters of language models are supported",
                                               task));
    const std::string bias = fields.text("bias");
    if (!bias.empty() && bias != "none" && bias != "all" && bias != "lora_only")
        fields.refuse("bias", "must be none, all or lora_only");
}

AdapterInit read_init(const Fields& fields) {
    const Json* const value = fields.find("init_lora_weights");
    if (value == nullptr || value->is_boolean()) return AdapterInit::kNone;
    const std::string init = lower(fields.text("init_lora_weights"));
    for (const char* plain : {"true", "false", "gaussian", "eva", "orthogonal", "mica", "lora"})
        if (init == plain) return AdapterInit::kNone;
    if (init == "pissa") return AdapterInit::kPissa;
    if (init == "olora") return AdapterInit::kOlora;
    fields.refuse(
        "init_lora_weights",
        fmt::format(
            "is {}: training began by changing the base's weights, and the files do not say how "
            "(it depends on data, random numbers or a quantization). Save the adapter with PEFT's "
            "save_pretrained(FOLDER, path_initial_model_for_weight_conversion=...), or merge it "
            "where it was trained",
            printable(init)));
}

void read_targets(const Fields& fields, AdapterConfig& config) {
    config.targets = fields.texts("target_modules");
    config.modules_to_save = fields.texts("modules_to_save");
    config.target_parameters = fields.texts("target_parameters");
    TargetNames& names = config.target_names;
    std::string text;
    if (const Json* const value = fields.find("target_modules"); value && value->is_string())
        text = value->get<std::string>();
    names.names_all_linear = lower(text) == "all-linear";
    if (!names.names_all_linear) names.targets = fields.names("target_modules");
    names.excluded = fields.names("exclude_modules");
    if (const Json* const layers = fields.find("layers_to_transform"))
        names.layers = fields.integers("layers_to_transform", *layers);
    names.lists = fields.texts("layers_pattern");
    std::erase(names.lists, "");
    for (const std::string& list : names.lists) {
        try {
            require_pattern(list);
        } catch (const std::regex_error&) {
            fields.refuse("layers_pattern", "contains a regular expression that is not supported");
        }
    }
}

void read_token_rows(const Fields& fields, AdapterConfig& config) {
    const char* const name = "trainable_token_indices";
    const Json* const value = fields.find(name);
    if (value == nullptr || is_off(*value)) return;
    if (!value->is_object()) {
        config.token_rows.emplace_back("", fields.integers(name, *value));
        return;
    }
    for (const auto& [table, rows] : value->items())
        config.token_rows.emplace_back(table, fields.integers(name, rows));
}

void list(JsonWriter& json, const char* name, const std::vector<std::string>& texts) {
    json.key(name);
    if (texts.empty()) {
        json.null();
        return;
    }
    json.begin_array();
    for (const std::string& text : texts) json.value(text);
    json.end_array();
}

void numbers(JsonWriter& json, const char* name, const NamedNumbers& all, bool are_whole) {
    json.key(name).begin_object();
    for (const auto& [pattern, number] : all) {
        if (are_whole) {
            json.field(pattern, static_cast<int64_t>(number));
        } else {
            json.field(pattern, number);
        }
    }
    json.end_object();
}

}  // namespace

double AdapterConfig::scale(int64_t rank, double of_alpha) const {
    const auto of = static_cast<double>(rank);
    return of_alpha / (is_rslora ? std::sqrt(of) : of);
}

int64_t AdapterConfig::rank_of(std::string_view path) const {
    return static_cast<int64_t>(number_for(rank_pattern, path, static_cast<double>(r)));
}

double AdapterConfig::scale_of(std::string_view path) const {
    return scale(rank_of(path), number_for(alpha_pattern, path, alpha));
}

bool AdapterConfig::is_plain() const {
    return rank_pattern.empty() && alpha_pattern.empty() && !is_dora &&
           init == AdapterInit::kNone && target_parameters.empty() && token_rows.empty();
}

AdapterConfig parse_adapter_config(const std::string& path, std::string_view text) {
    const Json json = Json::parse(text, nullptr, false);
    if (!json.is_object())
        fail(ExitCode::kInput, "{}: is not a JSON object, as adapter_config.json must be",
             printable(path));
    const Fields fields(path, json);
    require_lora(fields);
    refuse_unknown(fields);
    AdapterConfig config;
    config.base_model = fields.text("base_model_name_or_path");
    config.r = fields.rank("r", fields.number("r", 8));
    config.alpha = fields.number("lora_alpha", 8);
    config.dropout = fields.number("lora_dropout", 0);
    if (!std::isfinite(config.alpha)) fields.refuse("lora_alpha", "is not finite");
    config.is_rslora = fields.flag("use_rslora");
    config.is_transposed = fields.flag("fan_in_fan_out");
    config.is_dora = fields.flag("use_dora");
    config.is_tied = fields.flag("ensure_weight_tying");
    static_cast<void>(fields.flag("lora_bias"));
    config.rank_pattern = fields.named_numbers("rank_pattern");
    for (const auto& [pattern, rank] : config.rank_pattern)
        static_cast<void>(fields.rank("rank_pattern", rank));
    config.alpha_pattern = fields.named_numbers("alpha_pattern");
    config.init = read_init(fields);
    read_targets(fields, config);
    read_token_rows(fields, config);
    return config;
}

std::string adapter_config_json(const AdapterConfig& config) {
    JsonWriter json;
    json.begin_object().field("peft_type", "LORA").field("task_type", "CAUSAL_LM");
    json.field("base_model_name_or_path", config.base_model).field("inference_mode", true);
    json.field("r", config.r).field("lora_alpha", config.alpha);
    json.field("lora_dropout", config.dropout).field("use_rslora", config.is_rslora);
    json.field("bias", "none").field("fan_in_fan_out", config.is_transposed);
    // If target_modules is null, PEFT adapts the layers that it knows for the architecture.
    if (config.targets.empty() && !config.target_parameters.empty()) {
        json.key("target_modules").begin_array().end_array();
    } else {
        list(json, "target_modules", config.targets);
    }
    list(json, "target_parameters", config.target_parameters);
    list(json, "modules_to_save", config.modules_to_save);
    numbers(json, "rank_pattern", config.rank_pattern, true);
    numbers(json, "alpha_pattern", config.alpha_pattern, false);
    json.field("ensure_weight_tying", config.is_tied);
    json.end_object();
    return json.text() + "\n";
}

}  // namespace dslaunch::storage

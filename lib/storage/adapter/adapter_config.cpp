#include "storage/adapter/adapter_config.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "base/text/json.h"

namespace dslaunch::storage {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kPrefix = "base_model.model.";

class Fields {
  public:
    Fields(const std::string& path, const Json& json) : path_(path), json_(json) {}

    [[noreturn]] void refuse(const char* name, std::string_view why) const {
        fail(ExitCode::kInput, "{}: `{}` {}", printable(path_), name, why);
    }
    // Null where the field is missing or null.
    [[nodiscard]] const Json* find(const char* name) const {
        const auto found = json_.find(name);
        return found == json_.end() || found->is_null() ? nullptr : &*found;
    }
    [[nodiscard]] double number(const char* name, double otherwise) const {
        const Json* const value = find(name);
        if (value == nullptr) return otherwise;
        if (!value->is_number()) refuse(name, "is no number");
        return value->get<double>();
    }
    [[nodiscard]] bool flag(const char* name) const {
        const Json* const value = find(name);
        if (value != nullptr && !value->is_boolean()) refuse(name, "is neither true nor false");
        return value != nullptr && value->get<bool>();
    }
    [[nodiscard]] std::string text(const char* name) const {
        const Json* const value = find(name);
        if (value != nullptr && !value->is_string()) refuse(name, "is no text");
        return value == nullptr ? "" : value->get<std::string>();
    }
    [[nodiscard]] std::vector<std::string> texts(const char* name) const {
        const Json* const value = find(name);
        if (value == nullptr) return {};
        if (value->is_string()) return {value->get<std::string>()};
        if (!value->is_array()) refuse(name, "is no list of names");
        std::vector<std::string> all;
        for (const Json& item : *value) {
            if (!item.is_string()) refuse(name, "is no list of names");
            all.push_back(item.get<std::string>());
        }
        return all;
    }
    // Throws where an option is on that changes what an adapter computes.
    void require_off(const char* name) const {
        const Json* const value = find(name);
        if (value == nullptr) return;
        const bool off = (value->is_boolean() && !value->get<bool>()) ||
                         (value->is_structured() && value->empty());
        if (!off) refuse(name, "is not known here: only plain LoRA adapters are");
    }

  private:
    const std::string& path_;
    const Json& json_;
};

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

}  // namespace

double AdapterConfig::scale() const {
    const auto rank = static_cast<double>(r);
    return alpha / (rslora ? std::sqrt(rank) : rank);
}

std::string name_in_adapter(std::string_view name) {
    return std::string(kPrefix) + std::string(name);
}

std::string name_in_model(std::string_view name) {
    return name.starts_with(kPrefix) ? std::string(name.substr(kPrefix.size())) : "";
}

AdapterConfig parse_adapter_config(const std::string& path, std::string_view text) {
    const Json json = Json::parse(text, nullptr, false);
    if (!json.is_object())
        fail(ExitCode::kInput, "{}: is no JSON object, as adapter_config.json is", printable(path));
    const Fields fields(path, json);
    if (fields.text("peft_type") != "LORA") fields.refuse("peft_type", "is not LORA");
    for (const char* name : {"use_dora", "rank_pattern", "alpha_pattern", "lora_bias",
                             "layer_replication", "use_qalora", "trainable_token_indices"})
        fields.require_off(name);
    if (const std::string bias = fields.text("bias"); !bias.empty() && bias != "none")
        fields.refuse("bias", "is not none: only plain LoRA adapters are known here");
    AdapterConfig config;
    config.base_model = fields.text("base_model_name_or_path");
    const double rank = fields.number("r", 8);
    constexpr double kRankMax = 1 << 20;
    if (!(rank >= 1 && rank <= kRankMax) || rank != std::floor(rank))
        fields.refuse("r", "is no rank of an adapter");
    config.r = static_cast<int64_t>(rank);
    config.alpha = fields.number("lora_alpha", 8);
    config.dropout = fields.number("lora_dropout", 0);
    if (!std::isfinite(config.alpha)) fields.refuse("lora_alpha", "is not finite");
    config.rslora = fields.flag("use_rslora");
    config.transposed = fields.flag("fan_in_fan_out");
    config.targets = fields.texts("target_modules");
    config.modules_to_save = fields.texts("modules_to_save");
    return config;
}

std::string adapter_config_json(const AdapterConfig& config) {
    JsonWriter json;
    json.begin_object().field("peft_type", "LORA").field("task_type", "CAUSAL_LM");
    json.field("base_model_name_or_path", config.base_model).field("inference_mode", true);
    json.field("r", config.r).field("lora_alpha", config.alpha);
    json.field("lora_dropout", config.dropout).field("use_rslora", config.rslora);
    json.field("bias", "none").field("fan_in_fan_out", config.transposed);
    list(json, "target_modules", config.targets);
    list(json, "modules_to_save", config.modules_to_save);
    json.end_object();
    return json.text() + "\n";
}

}  // namespace dslaunch::storage

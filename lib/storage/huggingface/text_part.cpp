#include "storage/huggingface/text_part.h"

#include <algorithm>
#include <array>
#include <utility>

namespace dslaunch::storage {

namespace {

using Json = nlohmann::json;

struct Outer {
    const char* architecture;
    const char* model_type;
    const char* text_type;  // the text model's type if text_config names none
    bool is_tied;           // the default if config.json does not say
    bool text_ties;         // tie_word_embeddings of text_config is used too
};

constexpr Outer kOuters[] = {
    {"Gemma3ForConditionalGeneration", "gemma3", "gemma3_text", true, false},
    {"Mistral3ForConditionalGeneration", "mistral3", "mistral", true, false},
    {"LlavaForConditionalGeneration", "llava", "llama", false, true},
    {"LlavaNextForConditionalGeneration", "llava_next", "llama", false, false},
    {"LlavaOnevisionForConditionalGeneration", "llava_onevision", "qwen2", false, true},
    {"VipLlavaForConditionalGeneration", "vipllava", "llama", false, false},
    {"InternVLForConditionalGeneration", "internvl", "qwen2", true, false},
    {"AyaVisionForConditionalGeneration", "aya_vision", "cohere2", true, false},
    {"GotOcr2ForConditionalGeneration", "got_ocr2", "qwen2", true, false},
    {"Qwen2VLForConditionalGeneration", "qwen2_vl", "qwen2_vl_text", false, true},
    {"Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", "qwen2_5_vl_text", false, true},
    {"Qwen3VLForConditionalGeneration", "qwen3_vl", "qwen3_vl_text", false, false},
    {"Idefics3ForConditionalGeneration", "idefics3", "llama", false, false},
    {"SmolVLMForConditionalGeneration", "smolvlm", "llama", false, false},
};

// Text models that differ from a family only in the positions of images and in defaults.
constexpr std::pair<const char*, const char*> kSameFamily[] = {
    {"qwen2_vl_text", "qwen2"}, {"qwen2_5_vl_text", "qwen2"}, {"qwen3_vl_text", "qwen3"}};

// Returns the fields that a config class sets if config.json leaves them out. transformers does not
// write such fields into a text_config.
const Json& class_fields() {
    static const Json fields = Json::parse(R"({
"llama": {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
  "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 2048},
"mistral": {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
  "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
  "max_position_embeddings": 131072, "sliding_window": 4096},
"qwen2": {"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
  "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
  "max_position_embeddings": 32768, "sliding_window": 4096},
"qwen3": {"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
  "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
  "max_position_embeddings": 32768, "sliding_window": 4096},
"qwen2_vl_text": {"vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568,
  "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
  "max_position_embeddings": 32768, "sliding_window": 4096, "max_window_layers": 80,
  "rms_norm_eps": 1e-5, "rope_theta": 1e6},
"qwen2_5_vl_text": {"vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568,
  "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
  "max_position_embeddings": 32768, "sliding_window": 4096, "max_window_layers": 80,
  "rms_norm_eps": 1e-5, "rope_theta": 1e6},
"qwen3_vl_text": {"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
  "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
  "max_position_embeddings": 128000, "rope_theta": 5e5},
"gemma": {"vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576,
  "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16,
  "max_position_embeddings": 8192},
"gemma2": {"vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
  "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
  "max_position_embeddings": 8192, "sliding_window": 4096},
"gemma3_text": {"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
  "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
  "max_position_embeddings": 131072, "sliding_window": 4096},
"cohere2": {"vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528,
  "num_hidden_layers": 40, "num_attention_heads": 64, "max_position_embeddings": 8192,
  "sliding_window": 4096},
"phi3": {"vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192,
  "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 4096}
})");
    return fields;
}

std::string text_at(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

bool is_true(const Json& object, const char* key, bool otherwise) {
    const auto found = object.find(key);
    return found != object.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

const Outer* outer_of(const Json& config) {
    if (!config.is_object()) return nullptr;
    const auto names = config.find("architectures");
    const bool named = names != config.end() && names->is_array() && !names->empty();
    const std::string name =
        named && names->front().is_string() ? names->front().get<std::string>() : "";
    const std::string type = text_at(config, "model_type");
    for (const Outer& outer : kOuters)
        if (named ? name == outer.architecture : type == outer.model_type) return &outer;
    return nullptr;
}

// Keeps only one axis of positions. A text token has the same position on each axis of an image, so
// the axes do not differ.
void leave_one_axis(Json& config) {
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
        const auto rope = config.find(key);
        if (rope == config.end() || !rope->is_object()) continue;
        for (const char* axes : {"mrope_section", "mrope_interleaved"}) rope->erase(axes);
        for (const char* type : {"type", "rope_type"})
            if (text_at(*rope, type) == "mrope") (*rope)[type] = "default";
    }
}

}  // namespace

std::string outer_architecture(const Json& config) {
    const Outer* outer = outer_of(config);
    return outer == nullptr ? "" : outer->architecture;
}

Json text_config_of(const Json& config) {
    const Outer& outer = *outer_of(config);
    const auto within = config.find("text_config");
    const bool is_nested = within != config.end() && within->is_object();
    Json text = is_nested ? *within : config;
    const bool text_ties = is_nested && is_true(text, "tie_word_embeddings", false);
    std::string type = is_nested ? text_at(text, "model_type") : "";
    if (type.empty()) type = outer.text_type;
    add_class_fields(type, /*whole=*/false, text);
    for (const auto& [name, family] : kSameFamily)
        if (type == name) type = family;
    leave_one_axis(text);
    for (const char* key : {"architectures", "vision_config", "text_config"}) text.erase(key);
    for (const char* key : {"dtype", "torch_dtype", "bos_token_id", "eos_token_id"})
        if (config.contains(key) && !config.at(key).is_null()) text[key] = config.at(key);
    if (config.contains("quantization_config"))
        text["quantization_config"] = config.at("quantization_config");
    text["model_type"] = type;
    text["tie_word_embeddings"] =
        is_true(config, "tie_word_embeddings", outer.is_tied) || (outer.text_ties && text_ties);
    return text;
}

void add_class_fields(std::string_view model_type, bool whole, Json& config) {
    constexpr std::array<std::string_view, 5> kSizes = {"vocab_size", "hidden_size",
                                                        "intermediate_size", "num_hidden_layers",
                                                        "num_attention_heads"};
    const auto found = class_fields().find(std::string(model_type));
    if (found == class_fields().end() || !config.is_object()) return;
    for (const auto& [key, value] : found->items())
        if (!config.contains(key) && !(whole && std::ranges::find(kSizes, key) != kSizes.end()))
            config[key] = value;
}

std::optional<std::string> name_in_text_model(std::string_view name, const std::string& decoder) {
    constexpr std::array<std::string_view, 2> kHeads = {"language_model.lm_head.", "lm_head."};
    constexpr std::array<std::string_view, 4> kDecoders = {
        "language_model.model.", "model.language_model.", "model.text_model.", "language_model."};
    constexpr std::array<std::string_view, 6> kOthers = {"vision_tower.", "vision_model.",
                                                         "visual.",       "multi_modal_projector.",
                                                         "connector.",    "image_newline"};
    for (const std::string_view head : kHeads)
        if (name.starts_with(head)) return "lm_head." + std::string(name.substr(head.size()));
    for (const std::string_view outer : kDecoders)
        if (name.starts_with(outer)) return decoder + "." + std::string(name.substr(outer.size()));
    std::string_view inner = name;
    if (inner.starts_with("model.")) inner.remove_prefix(std::string_view("model.").size());
    if (std::ranges::any_of(kOthers, [&](auto other) { return inner.starts_with(other); }))
        return std::nullopt;
    return std::string(name);
}

}  // namespace dslaunch::storage

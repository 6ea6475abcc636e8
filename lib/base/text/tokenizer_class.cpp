#include "base/text/tokenizer_class.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace dslaunch {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kLlama = "LlamaTokenizer";
constexpr std::string_view kQwen2 = "Qwen2Tokenizer";

std::string text_at(const Json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return object.is_object() && found != object.end() && found->is_string()
               ? found->get<std::string>()
               : "";
}

// Returns true for models whose tokenizer is always exactly the one in tokenizer.json.
bool takes_file_alone(std::string_view model_type) {
    constexpr std::string_view kTypes[] = {"ernie4_5", "glm",     "glm4",       "gpt_bigcode",
                                           "granite",  "llava",   "llava_next", "mistral",
                                           "mistral3", "mixtral", "nemotron",   "olmo2",
                                           "olmo3",    "phi3",    "smolvlm",    "stablelm"};
    return std::ranges::find(kTypes, model_type) != std::ranges::end(kTypes);
}

// Returns true for tokenizer classes that overwrite add_prefix_space in the ByteLevel step.
bool sets_byte_level(std::string_view name) {
    constexpr std::string_view kClasses[] = {"CodeGenTokenizer", "CohereTokenizer",
                                             "GPT2Tokenizer",    "GPTNeoXTokenizer",
                                             "RobertaTokenizer", kQwen2};
    return std::ranges::find(kClasses, name) != std::ranges::end(kClasses);
}

std::string class_of(const TokenizerClassFiles& files) {
    constexpr std::string_view kFast = "Fast";
    const std::string model_type = text_at(files.config, "model_type");
    if (takes_file_alone(model_type)) return "";
    if (model_type == "qwen2") return std::string(kQwen2);
    std::string name = text_at(files.tokenizer_config, "tokenizer_class");
    if (name.empty()) name = text_at(files.config, "tokenizer_class");
    if (name.ends_with(kFast)) name.erase(name.size() - kFast.size());
    if (name.empty() && model_type == "gpt2") return "GPT2Tokenizer";
    return name;
}

// Calls USE with each ByteLevel step in STEP, which is one step or a sequence of steps.
template <typename Use>
void for_byte_levels(Json& step, const Use& use) {
    if (!step.is_object()) return;
    if (text_at(step, "type") == "ByteLevel") return use(step);
    for (const char* list : {"pretokenizers", "decoders"})
        if (step.contains(list) && step[list].is_array())
            for (Json& one : step[list]) for_byte_levels(one, use);
}

// Sets the steps of a Llama tokenizer. If PREFIX is true, a blank is put in front of the text, but
// not in front of text that follows a special token.
void set_like_llama(bool prefix, Json& tokenizer) {
    tokenizer["normalizer"] = nullptr;
    tokenizer["pre_tokenizer"] = {{"type", "Metaspace"},
                                  {"replacement", "▁"},
                                  {"prepend_scheme", prefix ? "first" : "never"},
                                  {"split", false}};
    Json decoders = {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                     {{"type", "ByteFallback"}},
                     {{"type", "Fuse"}}};
    if (prefix)
        decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    tokenizer["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
}

// Returns the number of TOKEN in the vocabulary of MODEL; null if the vocabulary does not contain
// TOKEN. MODEL is the `model` object of a tokenizer.json.
Json number_of(const Json& model, const std::string& token) {
    const auto vocab = model.find("vocab");
    if (vocab == model.end()) return nullptr;
    if (vocab->is_object()) return vocab->value(token, Json());
    for (size_t i = 0; vocab->is_array() && i < vocab->size(); ++i)
        if (const Json& row = (*vocab)[i]; row.is_array() && !row.empty() && row[0] == token)
            return i;
    return nullptr;
}

// Adds the tokens that CONFIG names, such as its eos_token, to the added tokens, so that they are
// found in texts even if TOKENIZER has them only in its vocabulary.
void add_named_tokens(const Json& config, Json& tokenizer) {
    Json& added = tokenizer["added_tokens"];
    if (!config.is_object() || !tokenizer.contains("model") || !tokenizer["model"].is_object())
        return;
    if (added.is_null()) added = Json::array();
    for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                             "cls_token", "mask_token"}) {
        std::string token = text_at(config, name);
        if (token.empty() && config.contains(name)) token = text_at(config[name], "content");
        const bool is_added = std::ranges::any_of(
            added, [&](const Json& one) { return text_at(one, "content") == token; });
        if (token.empty() || is_added) continue;
        const Json number = number_of(tokenizer["model"], token);
        if (!number.is_number()) continue;
        added.push_back({{"id", number},
                         {"content", token},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", true}});
    }
}

}  // namespace

void apply_tokenizer_class(const TokenizerClassFiles& files, Json& tokenizer) {
    if (!tokenizer.is_object()) return;
    add_named_tokens(files.tokenizer_config, tokenizer);
    const std::string name = class_of(files);
    const bool is_llama = name == kLlama;
    if (!is_llama && !sets_byte_level(name)) return;
    bool prefix = is_llama;
    if (files.tokenizer_config.is_object() && files.tokenizer_config.contains("add_prefix_space"))
        if (const Json& said = files.tokenizer_config["add_prefix_space"]; said.is_boolean())
            prefix = said.get<bool>();
    bool in_bytes = false;
    const auto see = [&](Json&) { in_bytes = true; };
    for (const char* section : {"pre_tokenizer", "decoder"})
        if (tokenizer.contains(section)) for_byte_levels(tokenizer[section], see);
    if (is_llama) {
        const bool is_bpe =
            tokenizer.contains("model") && text_at(tokenizer["model"], "type") == "BPE";
        if (is_bpe && !in_bytes) set_like_llama(prefix, tokenizer);
    } else if (tokenizer.contains("pre_tokenizer")) {
        for_byte_levels(tokenizer["pre_tokenizer"],
                        [&](Json& step) { step["add_prefix_space"] = prefix; });
    }
}

}  // namespace dslaunch

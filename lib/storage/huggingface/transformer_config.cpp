#include "storage/huggingface/transformer_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/text.h"
#include "base/text/json_place.h"
#include "storage/huggingface/config_values.h"
#include "storage/huggingface/family_fields.h"
#include "storage/huggingface/text_part.h"

namespace dslaunch::storage {

namespace {

DType dtype_named(const JsonPlace& place) {
    // float64 weights are read as float32.
    static const std::map<std::string, DType, std::less<>> table{
        {"auto", DType::kF32},    {"float32", DType::kF32}, {"float", DType::kF32},
        {"float64", DType::kF32}, {"double", DType::kF32},  {"bfloat16", DType::kBF16},
        {"float16", DType::kF16}, {"half", DType::kF16}};
    if (const auto found = table.find(place.text()); found != table.end()) return found->second;
    place.refuse(fmt::format("weights of type `{}` are not supported by this version",
                             printable(place.text())));
}

struct Family {
    const char* architecture;
    const char* model_type;
    FamilyReader* read;
};

constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", "llama", read_llama},
    {"MistralForCausalLM", "mistral", read_mistral},
    {"Qwen2ForCausalLM", "qwen2", read_qwen2},
    {"Qwen3ForCausalLM", "qwen3", read_qwen3},
    {"Qwen2MoeForCausalLM", "qwen2_moe", read_qwen2_moe},
    {"Qwen3MoeForCausalLM", "qwen3_moe", read_qwen3_moe},
    {"MixtralForCausalLM", "mixtral", read_mixtral},
    {"OlmoeForCausalLM", "olmoe", read_olmoe},
    {"GemmaForCausalLM", "gemma", read_gemma},
    {"Gemma2ForCausalLM", "gemma2", read_gemma2},
    {"Gemma3ForCausalLM", "gemma3_text", read_gemma3},
    {"OlmoForCausalLM", "olmo", read_olmo},
    {"Olmo2ForCausalLM", "olmo2", read_olmo2},
    {"Olmo3ForCausalLM", "olmo3", read_olmo3},
    {"CohereForCausalLM", "cohere", read_cohere},
    {"Cohere2ForCausalLM", "cohere2", read_cohere2},
    {"PhiForCausalLM", "phi", read_phi},
    {"Phi3ForCausalLM", "phi3", read_phi3},
    {"SmolLM3ForCausalLM", "smollm3", read_smollm3},
    {"GraniteForCausalLM", "granite", read_granite},
    {"StableLmForCausalLM", "stablelm", read_stablelm},
    {"GlmForCausalLM", "glm", read_glm},
    {"Glm4ForCausalLM", "glm4", read_glm4},
    {"SeedOssForCausalLM", "seed_oss", read_seed_oss},
    {"HeliumForCausalLM", "helium", read_helium},
    {"Ernie4_5ForCausalLM", "ernie4_5", read_ernie},
    {"ArceeForCausalLM", "arcee", read_arcee},
    {"NemotronForCausalLM", "nemotron", read_nemotron},
    {"Starcoder2ForCausalLM", "starcoder2", read_starcoder2},
    {"GPT2LMHeadModel", "gpt2", read_gpt2},
    {"GPTBigCodeForCausalLM", "gpt_bigcode", read_gpt_bigcode},
    {"GPTJForCausalLM", "gptj", read_gptj},
    {"GPTNeoXForCausalLM", "gpt_neox", read_gpt_neox},
    {"FalconForCausalLM", "falcon", read_falcon},
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
        "the architecture `{}` is not supported by this version; supported are {}. Any model can "
        "be trained from a file that torch.export.save writes (docs/guide/models.md)",
        printable(name.empty() ? type : name), join(known_architectures(), ", ")));
}

// Returns the number of parameters in all large matrices. The result is a double, because the
// product of three sizes of up to 2^29 can overflow an int64.
double parameters_of(const TransformerConfig& model) {
    const auto number = [](int64_t size) { return static_cast<double>(size); };
    const double width = number(model.width), head = number(model.head_width);
    const double attention = 2 * width * head * (number(model.heads) + number(model.key_heads));
    double all = number(model.vocabulary) * width * (model.is_tied ? 1 : 2);
    if (model.has_learned_positions) all += number(model.context) * width;
    for (const TransformerLayer& layer : model.layers)
        all += attention + 3 * width *
                               (layer.has_experts
                                    ? number(model.experts) * number(model.expert_width) +
                                          number(model.shared_expert_width)
                                    : number(model.mlp_width));
    return all;
}

void check_sizes(const JsonPlace& config, const TransformerConfig& model) {
    constexpr double kParametersMax = 0x1p43;  // in fp32, a quarter of a process's address space
    if (const double all = parameters_of(model); all > kParametersMax)
        config.refuse(fmt::format(
            "its sizes give {:.3g} parameters, but this version supports at most {:.3g}", all,
            kParametersMax));
    // The limits are some tens of times larger than in any known model.
    const std::pair<const char*, std::array<int64_t, 2>> sizes[] = {
        {"tokens in the vocabulary", {model.vocabulary, int64_t{1} << 24}},
        {"elements in a token's state", {model.width, int64_t{1} << 20}},
        {"heads", {model.heads, int64_t{1} << 16}},
        {"elements in a head", {model.head_width, int64_t{1} << 16}},
        {"elements in the hidden layer of an MLP",
         {std::max({model.mlp_width, model.expert_width, model.shared_expert_width}),
          int64_t{1} << 24}}};
    for (const auto& [what, size] : sizes)
        if (size[0] > size[1])
            config.refuse(
                fmt::format("{} {}, but this version supports at most {}", size[0], what, size[1]));
    constexpr int64_t kHeadNormsOfAllMax = 1 << 15;
    const int64_t norms = model.head_norm == HeadNormKind::kList
                              ? (model.heads + model.key_heads) * std::ssize(model.layers)
                              : 0;
    if (norms > kHeadNormsOfAllMax)
        config.refuse(
            fmt::format("{} layers have {} norms of heads, but this version supports at most {}",
                        model.layers.size(), norms, kHeadNormsOfAllMax));
    constexpr int64_t kExpertsOfAllMax = 1 << 15;
    const int64_t experts = model.experts * std::ssize(model.layers);
    if (experts > kExpertsOfAllMax)
        config.refuse(fmt::format(
            "{} layers of {} experts make {} experts, but this version supports at most {}",
            model.layers.size(), model.experts, experts, kExpertsOfAllMax));
}

void check(const JsonPlace& config, const TransformerConfig& model) {
    check_sizes(config, model);
    if (model.heads % model.key_heads != 0)
        config.refuse(
            fmt::format("{} heads cannot be divided evenly among {} heads of keys and values",
                        model.heads, model.key_heads));
    if (!model.outer.empty() && (model.logit_scale != 1 || model.logit_cap > 0))
        config.refuse(
            fmt::format("its text model scales or caps the logits, but a {} does not: it is "
                        "unknown whether the model was trained with scaled or capped logits",
                        model.outer));
    if (model.has_experts() && model.experts_chosen > model.experts)
        config.refuse(fmt::format("{} experts are to be chosen for a token, but there are only {}",
                                  model.experts_chosen, model.experts));
}

}  // namespace

std::vector<std::string> known_architectures() {
    std::vector<std::string> names;
    for (const Family& family : kFamilies) names.emplace_back(family.architecture);
    return names;
}

TransformerConfig parse_transformer_config(const std::string& path, std::string_view text) {
    JsonPlace::Json json = JsonPlace::parse(path, text);
    TransformerConfig model;
    model.outer = outer_architecture(json);
    if (!model.outer.empty()) json = text_config_of(json);
    const std::string place = model.outer.empty() ? path : path + ": text_config";
    const JsonPlace config(place, json);
    const Family& family = family_of(config);
    add_class_fields(family.model_type, /*whole=*/model.outer.empty(), json);
    model.architecture = family.architecture;
    family.read(config, model);
    for (const char* key : {"torch_dtype", "dtype"})
        if (config.has(key)) model.dtype = dtype_named(config.at(key));
    check(config, model);
    constexpr const char* kQuantization = "quantization_config";
    if (config.has(kQuantization))
        model.quantization = parse_quantization(config.at(kQuantization));
    model.says_tied = model.is_tied;
    return model;
}

std::string text_of_config(const std::string& text, const TransformerConfig& model) {
    if (model.outer.empty() && model.is_tied == model.says_tied && !model.quantization) return text;
    JsonPlace::Json json = JsonPlace::Json::parse(text);
    if (!model.outer.empty()) json = text_config_of(json);
    json.erase("quantization_config");  // the weights are numbers again
    json["architectures"] = {model.architecture};
    json["tie_word_embeddings"] = model.is_tied;
    return json.dump(2) + "\n";
}

bool TransformerConfig::has_window() const {
    return std::ranges::any_of(layers, &TransformerLayer::has_window);
}

bool TransformerConfig::has_experts() const {
    return std::ranges::any_of(layers, &TransformerLayer::has_experts);
}

bool TransformerConfig::has_rotary() const {
    return std::ranges::any_of(layers, &TransformerLayer::turns);
}

}  // namespace dslaunch::storage

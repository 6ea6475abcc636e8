// The values of GGUF files that decide what a model computes: they are taken over or refused.
#include "storage/gguf_model/gguf_config.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "storage/gguf/gguf_file.h"
#include "storage/gguf/gguf_values.h"
#include "storage/gguf_model/gguf_model_reader.h"
#include "storage/huggingface/transformer_config.h"
#include "support/temporary_folder.h"
#include "unit/storage/gguf/gguf_folders.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;

namespace {

using AddValues = std::function<void(GgufValues&)>;

// Returns the config.json of a file of FAMILY with small sizes, the values that MORE adds, and
// TENSORS.
Json config_in_file(const std::string& family, const AddValues& more,
                    const std::vector<GgufTensor>& tensors = {}) {
    const TemporaryFolder place;
    GgufValues values;
    values.add("general.architecture", family);
    for (const auto& [key, number] : std::map<std::string, int64_t>{{"context_length", 4096},
                                                                    {"embedding_length", 32},
                                                                    {"block_count", 1},
                                                                    {"feed_forward_length", 4},
                                                                    {"attention.head_count", 4}})
        values.add(family + "." + key, number);
    values.add(family + ".attention.layer_norm_rms_epsilon", 1e-5F);
    more(values);
    std::vector<GgufTensor> all{{"token_embd.weight", GgufForm::kF32, {3, 32}, {}}};
    all.insert(all.end(), tensors.begin(), tensors.end());
    const std::string path = place.path() + "/x.gguf";
    GgufWriter writer(path, values, all);
    const std::vector<float> ones(96, 2.0F);
    for (const GgufTensor& tensor : all) {
        const auto numel = static_cast<size_t>(tensor.shape.size() == 2 ? 96 : tensor.shape[0]);
        writer.append(std::as_bytes(std::span(ones).first(numel)));
    }
    writer.commit();
    return Json::parse(config_of_gguf(GgufFile(path).content()));
}

Json scaling_in(const AddValues& more) {
    return config_in_file("llama", more).value("rope_scaling", Json());
}

std::string fault_in(const std::string& family, const AddValues& more,
                     const std::vector<GgufTensor>& tensors = {}) {
    return error_of(ExitCode::kInput,
                    [&] { static_cast<void>(config_in_file(family, more, tensors)); });
}

}  // namespace

TEST_CASE("the scaling of positions in a GGUF file is llama.cpp's") {
    CHECK(scaling_in([](GgufValues&) {}).is_null());
    const Json linear4 = {{"rope_type", "linear"}, {"factor", 4.0}};
    CHECK(scaling_in([](GgufValues& v) { v.add("llama.rope.scaling.factor", 4.0F); }) == linear4);
    CHECK(scaling_in([](GgufValues& v) { v.add("llama.rope.scale_linear", 4.0F); }) == linear4);
    CHECK(scaling_in([](GgufValues& v) {
              v.add("llama.rope.scaling.type", "none");
              v.add("llama.rope.scaling.factor", 4.0F);
          }).is_null());
    CHECK(scaling_in([](GgufValues& v) { v.add("llama.rope.scaling.factor", 0.0F); }).is_null());
    const Json yarn = scaling_in([](GgufValues& v) {
        v.add("llama.rope.scaling.type", "yarn");
        v.add("llama.rope.scaling.factor", 4.0F);
        v.add("llama.rope.scaling.original_context_length", int64_t{1024});
        v.add("llama.rope.scaling.attn_factor", 0.5F);
        v.add("llama.rope.scaling.yarn_beta_fast", 16.0F);
        v.add("llama.rope.scaling.yarn_beta_slow", 2.0F);
    });
    CHECK(yarn["rope_type"] == "yarn");
    CHECK(yarn["factor"] == 4.0);
    CHECK(yarn["original_max_position_embeddings"] == 1024);
    CHECK(yarn["beta_fast"] == 16.0);
    CHECK(yarn["beta_slow"] == 2.0);
    const double magnitude = 0.5 * (1 + 0.1 * std::log(4.0));
    CHECK(std::abs(yarn["attention_factor"].get<double>() - magnitude) < 1e-12);
}

TEST_CASE("scalings of positions that a config.json cannot express are refused") {
    for (const char* name : {"yarn_ext_factor", "yarn_log_multiplier", "yarn_attn_factor"}) {
        const std::string key = std::string("llama.rope.scaling.") + name;
        CHECK(mentions(fault_in("llama",
                                [&](GgufValues& v) {
                                    v.add("llama.rope.scaling.type", "yarn");
                                    v.add(key, 0.5F);
                                }),
                       name));
    }
    CHECK(mentions(
        fault_in("llama", [](GgufValues& v) { v.add("llama.rope.scaling.attn_factor", 2.0F); }),
        "attn_factor"));
    const std::vector<GgufTensor> factors{{"rope_freqs.weight", GgufForm::kF32, {4}, {}}};
    CHECK(fault_in(
              "llama", [](GgufValues&) {}, factors) == "accepted");
    CHECK(mentions(
        fault_in(
            "llama", [](GgufValues& v) { v.add("llama.rope.scaling.factor", 4.0F); }, factors),
        "together with a tensor of rope factors"));
}

TEST_CASE("values with which a GGUF model computes something else are refused") {
    struct Row {
        const char *family, *key;
        AddValues add;
    };
    const auto number = [](const char* key, float value) {
        return [=](GgufValues& v) { v.add(key, value); };
    };
    const Row rows[] = {
        {"llama", "attention.scale", number("llama.attention.scale", 0.5F)},
        {"qwen3", "final_logit_softcapping", number("qwen3.final_logit_softcapping", 30)},
        {"llama", "logit_scale", number("llama.logit_scale", 2)},
        {"llama", "residual_scale", number("llama.residual_scale", 2)},
        {"llama", "embedding_scale", number("llama.embedding_scale", 2)},
        {"qwen3moe", "expert_weights_scale", number("qwen3moe.expert_weights_scale", 2)},
        {"llama", "attention.causal",
         [](GgufValues& v) { v.add("llama.attention.causal", false); }},
        {"llama", "expert_gating_func",
         [](GgufValues& v) { v.add("llama.expert_gating_func", int64_t{2}); }},
        {"granite", "rope.scaling.finetuned",
         [](GgufValues& v) { v.add("granite.rope.scaling.finetuned", false); }},
        {"gemma3", "attention.sliding_window_pattern",
         [](GgufValues& v) { v.add("gemma3.attention.sliding_window_pattern", int64_t{4}); }},
        {"llama", "rope.dimension_sections",
         [](GgufValues& v) {
             v.add("llama.rope.dimension_sections", std::vector<int32_t>{16, 24, 24, 0});
         }},
        {"llama", "attention.head_count",
         [](GgufValues& v) { v.add("llama.attention.key_length", int64_t{1} << 31); }},
    };
    for (const Row& row : rows) {
        INFO(row.key);
        const std::string key =
            row.key == std::string("attention.head_count") ? "attention.key_length" : row.key;
        CHECK(mentions(fault_in(row.family, row.add), key));
    }
    // Granite's scales may be missing.
    const Json granite =
        config_in_file("granite", [](GgufValues& v) { v.add("granite.logit_scale", 8.0F); });
    CHECK(granite["logits_scaling"] == 8.0);
    CHECK(granite["residual_multiplier"] == 1.0);
    CHECK(std::abs(granite["attention_multiplier"].get<double>() - 1 / std::sqrt(8.0)) < 1e-12);
}

TEST_CASE("each number of rotated elements of a head is kept") {
    const std::pair<int64_t, int64_t> rows[] = {
        {100, 58}, {104, 30}, {104, 60}, {44, 30}, {80, 20}};
    for (const auto& [head, width] : rows) {
        INFO(head << " " << width);
        const AddValues add = [head = head, width = width](GgufValues& v) {
            v.add("stablelm.attention.key_length", head);
            v.add("stablelm.rope.dimension_count", width);
        };
        const double part = config_in_file("stablelm", add)["partial_rotary_factor"];
        CHECK(static_cast<int64_t>(static_cast<double>(head) * part) == width);
    }
}

TEST_CASE("a model with very many norms of heads is refused before they are listed") {
    Json config =
        config_of("StableLmForCausalLM", {{"qk_layernorm", true}, {"partial_rotary_factor", 1.0}});
    config["num_hidden_layers"] = 1024;
    config["num_attention_heads"] = config["num_key_value_heads"] = 32;
    config["hidden_size"] = 64;
    CHECK(mentions(
        error_of(ExitCode::kInput,
                 [&] { static_cast<void>(parse_transformer_config("here", config.dump())); }),
        "65536 norms of heads"));
}

TEST_CASE("a model whose tensors llama.cpp does not read or needs is refused") {
    const Json llama3 = {{"rope_type", "llama3"},
                         {"factor", 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 8192}};
    struct Row {
        const char* architecture;
        Json fields;
        const char* why;
    };
    const Row rows[] = {
        {"Qwen2ForCausalLM", {{"rope_scaling", llama3}}, "the factors of `llama3`"},
        {"GPTNeoXForCausalLM", {{"attention_bias", false}}, "`attention_bias`"},
        {"GPTNeoXForCausalLM", {{"tie_word_embeddings", true}}, "`tie_word_embeddings`"},
        {"PhiForCausalLM", {{"tie_word_embeddings", true}}, "`tie_word_embeddings`"},
        {"PhiForCausalLM", {{"qk_layernorm", true}}, "`qk_layernorm`"},
        {"Starcoder2ForCausalLM", {{"use_bias", false}}, "`use_bias`"},
        {"FalconForCausalLM",
         {{"new_decoder_architecture", true}, {"num_kv_heads", 2}, {"bias", true}},
         "`bias`"},
        {"Ernie4_5ForCausalLM", {{"use_bias", true}}, "ignores the biases"},
        {"ArceeForCausalLM", {{"hidden_act", "relu2"}, {"mlp_bias", true}}, "ignores the biases"},
        {"Qwen2ForCausalLM", {{"head_dim", 16}}, "`head_dim`"},
        {"CohereForCausalLM", {{"use_qk_norm", true}}, "`use_qk_norm`"},
    };
    for (const Row& row : rows) {
        INFO(row.architecture << " " << row.why);
        const TemporaryFolder place;
        write_folder(place.path(), config_of(row.architecture, row.fields));
        CHECK(mentions(refusal_of(place.path(), place.path() + "/x.gguf"), row.why));
    }
}

TEST_CASE("an import replaces another model's files, and refuses numbers that are not finite") {
    const TemporaryFolder place;
    const std::string from = place.path() + "/from", to = place.path() + "/to";
    const std::string file = place.path() + "/x.gguf";
    write_folder(from, config_of("LlamaForCausalLM", Json::object()));
    static_cast<void>(
        write_gguf(storage::open_model_folder(from), file, plainly(GgufFileType::kF32)));
    write_folder(to, config_of("LlamaForCausalLM", Json::object()));
    for (const char* old : {"chat_template.jinja", "special_tokens_map.json", "tokenizer.json"})
        write_file(to + "/" + old, "{}");
    write_file(to + "/README.md", "mine");
    static_cast<void>(import_gguf(file, to, {}));
    for (const char* old : {"chat_template.jinja", "special_tokens_map.json", "tokenizer.json"})
        CHECK_FALSE(std::filesystem::exists(to + "/" + old));
    CHECK(content_of(to + "/README.md") == "mine");
    // The last number of the file, which belongs to the last tensor, is too large for fp16.
    std::string bytes = content_of(file);
    const float large = 1e6F, none = NAN;
    std::memcpy(bytes.data() + bytes.size() - 4, &large, 4);
    write_file(file, bytes);
    const auto fault = [&](DType dtype) {
        return error_of(ExitCode::kInput, [&] {
            static_cast<void>(import_gguf(file, to, {dtype, {}}));
        });
    };
    CHECK(fault(DType::kBF16) == "accepted");
    CHECK(mentions(fault(DType::kF16), "cannot hold"));
    // The folder has no weights after a failure: not the old ones with the new texts.
    CHECK_FALSE(std::filesystem::exists(to + "/model.safetensors"));
    std::memcpy(bytes.data() + bytes.size() - 4, &none, 4);
    write_file(file, bytes);
    CHECK(mentions(fault(DType::kF32), "not finite"));
}

TEST_CASE("importance that is not finite is refused by the weight's name") {
    const TemporaryFolder place;
    write_folder(place.path() + "/from", config_of("LlamaForCausalLM", Json::object()));
    GgufWriteOptions options = plainly(GgufFileType::kQ4_0);
    options.importance = [](const std::string&, int64_t in) {
        return std::vector<float>(static_cast<size_t>(in), NAN);
    };
    CHECK(mentions(error_of(ExitCode::kInput,
                            [&] {
                                static_cast<void>(
                                    write_gguf(storage::open_model_folder(place.path() + "/from"),
                                               place.path() + "/x.gguf", options));
                            }),
                   "importance of an input of `"));
}

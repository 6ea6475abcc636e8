// Folders of small models for the tests of GGUF files, and tokenizers for them.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "storage/files/safetensors.h"
#include "storage/gguf_model/gguf_model_writer.h"
#include "storage/huggingface/gguf_names.h"
#include "storage/huggingface/model_folder.h"
#include "support/catch.h"
#include "support/text_tools.h"

namespace dslaunch::test {

using Json = nlohmann::json;
using storage::GgufFileType;
using storage::GgufWriteOptions;

// A config of the ARCHITECTURE with small sizes, and FIELDS.
inline Json config_of(const std::string& architecture, const Json& fields) {
    Json config = {{"architectures", {architecture}},
                   {"vocab_size", 32},
                   {"hidden_size", 32},
                   {"intermediate_size", 64},
                   {"num_hidden_layers", 2},
                   {"num_attention_heads", 4},
                   {"num_key_value_heads", 2},
                   {"max_position_embeddings", 64}};
    config.update(fields);
    return config;
}

// Writes a folder with CONFIG and weights that are multiples of 1/64, so that 1 more is exact.
inline void write_folder(const std::string& folder, const Json& config) {
    write_file(folder + "/config.json", config.dump());
    const storage::TransformerConfig model = storage::open_model_folder(folder).config;
    std::vector<std::vector<float>> numbers;
    std::vector<storage::SafetensorsEntry> entries;
    unsigned next = 1;
    for (const storage::GgufWeight& weight :
         storage::gguf_weights(model, storage::gguf_family_of(model, "here")))
        for (const std::string& name : weight.names) {
            int64_t numel = 1;
            for (const int64_t size : weight.sizes) numel *= size;
            std::vector<float>& own = numbers.emplace_back(static_cast<size_t>(numel));
            for (float& number : own) {
                next = next * 1664525U + 1013904223U;
                number = static_cast<float>(static_cast<int>(next >> 25) - 64) / 64;
            }
            entries.push_back({name, DType::kF32, weight.sizes, {}});
        }
    storage::SafetensorsWriter writer(folder + "/model.safetensors", entries);
    for (size_t i = 0; i < entries.size(); ++i)
        writer.write(i, std::as_bytes(std::span(numbers[i])));
    writer.commit();
}

// Returns an architecture and fields for each family, and for switches that change its tensors or
// its metadata.
inline std::vector<std::pair<const char*, Json>> family_rows() {
    const Json l3 = {{"rope_type", "llama3"},
                     {"factor", 8.0},
                     {"low_freq_factor", 1.0},
                     {"high_freq_factor", 4.0},
                     {"original_max_position_embeddings", 8192}};
    const Json gpt = {{"n_embd", 32}, {"n_head", 4}, {"n_layer", 2}, {"n_positions", 64}};
    return {
        {"LlamaForCausalLM", {{"rope_theta", 500000.0}, {"rope_scaling", l3}}},
        {"LlamaForCausalLM", {{"attention_bias", true}, {"mlp_bias", true}, {"head_dim", 16}}},
        {"MixtralForCausalLM", {{"num_local_experts", 3}, {"num_experts_per_tok", 2}}},
        {"Qwen2ForCausalLM", {{"tie_word_embeddings", true}}},
        {"Qwen3ForCausalLM", {{"head_dim", 16}}},
        {"Qwen2MoeForCausalLM",
         {{"num_experts", 3},
          {"num_experts_per_tok", 2},
          {"moe_intermediate_size", 32},
          {"shared_expert_intermediate_size", 32}}},
        {"GemmaForCausalLM", {{"head_dim", 8}}},
        {"Gemma2ForCausalLM",
         {{"head_dim", 8}, {"query_pre_attn_scalar", 8}, {"sliding_window", 16}}},
        {"Gemma3ForCausalLM",
         {{"head_dim", 8}, {"query_pre_attn_scalar", 8}, {"sliding_window", 16}}},
        {"Phi3ForCausalLM", Json::object()},
        {"PhiForCausalLM", Json::object()},
        {"OlmoForCausalLM", Json::object()},
        {"Olmo2ForCausalLM", Json::object()},
        {"StableLmForCausalLM", {{"qk_layernorm", true}, {"use_qkv_bias", true}}},
        {"NemotronForCausalLM", {{"hidden_act", "relu2"}}},
        {"Starcoder2ForCausalLM", Json::object()},
        {"CohereForCausalLM", Json::object()},
        {"GraniteForCausalLM", {{"attention_multiplier", 0.25}, {"logits_scaling", 2.0}}},
        {"GPT2LMHeadModel", gpt},
        {"GPTNeoXForCausalLM", Json::object()},
        {"FalconForCausalLM", {{"new_decoder_architecture", true}, {"num_kv_heads", 2}}},
        {"FalconForCausalLM", {{"new_decoder_architecture", false}, {"multi_query", true}}},
        {"MistralForCausalLM", Json::object()},
        {"Qwen3MoeForCausalLM",
         {{"num_experts", 3},
          {"num_experts_per_tok", 2},
          {"moe_intermediate_size", 32},
          {"norm_topk_prob", true},
          {"head_dim", 8}}},
        {"OlmoeForCausalLM",
         {{"num_experts", 3}, {"num_experts_per_tok", 2}, {"num_key_value_heads", 4}}},
        {"Cohere2ForCausalLM", {{"num_hidden_layers", 4}, {"sliding_window", 16}}},
        {"SmolLM3ForCausalLM", {{"num_hidden_layers", 4}}},
        {"Glm4ForCausalLM", {{"head_dim", 8}}},
        {"SeedOssForCausalLM", {{"head_dim", 8}}},
        {"Ernie4_5ForCausalLM", {{"head_dim", 8}}},
        {"ArceeForCausalLM", {{"hidden_act", "relu2"}}},
        {"GPTBigCodeForCausalLM", gpt},
        {"LlamaForCausalLM", {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}}}},
        {"Qwen2ForCausalLM",
         {{"rope_scaling",
           {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}}}}},
        {"Phi3ForCausalLM",
         {{"original_max_position_embeddings", 32},
          {"rope_scaling",
           {{"type", "longrope"},
            {"short_factor", {1.0, 1.5, 2.0, 3.0}},
            {"long_factor", {1.0, 2.0, 4.0, 8.0}}}}}},
    };
}

inline GgufWriteOptions plainly(GgufFileType type) {
    GgufWriteOptions options;
    options.type = type;
    return options;
}

// Returns why the model in FOLDER cannot be written as OUT; "accepted" if it can.
inline std::string refusal_of(const std::string& folder, const std::string& out) {
    return error_of(ExitCode::kInput, [&] {
        static_cast<void>(storage::write_gguf(storage::open_model_folder(folder), out,
                                              plainly(GgufFileType::kF32)));
    });
}

inline const Json kByteTokenizer = Json::parse(R"({
  "version": "1.0",
  "added_tokens": [{"id": 0, "content": "<|end|>", "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": true}],
  "normalizer": null,
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Digits", "individual_digits": true},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]},
  "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
      "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [0], "tokens": ["<|end|>"]}}},
  "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
              "use_regex": true},
  "model": {"type": "BPE",
            "vocab": {"<|end|>": 0, "a": 1, "b": 2, "Ġ": 3, "ab": 4, "Ġab": 5, "1": 6, "2": 7,
                      "c": 8},
            "merges": [["a", "b"], ["Ġ", "ab"]]}
})");

inline const Json kCharacterTokenizer = Json::parse(R"({
  "version": "1.0",
  "added_tokens": [{"id": 0, "content": "<unk>", "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": true},
                   {"id": 1, "content": "<s>", "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": true}],
  "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
  "pre_tokenizer": null,
  "post_processor": null,
  "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
  "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
            "vocab": {"<unk>": 0, "<s>": 1, "<0x0A>": 2, "▁": 3, "a": 4, "b": 5, "bb": 6, "ab": 7,
                      "▁ab": 8, "abb": 9},
            "merges": [["b", "b"], ["a", "b"], ["▁", "ab"], ["a", "bb"], ["ab", "b"]]}
})");

}  // namespace dslaunch::test

// Folders of small models for the tests of GGUF files, and tokenizers for them.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
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

#include "storage/huggingface/folder_files.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>

#include "base/text/json.h"
#include "storage/files/atomic_file.h"

namespace dslaunch::storage {

namespace fs = std::filesystem;

namespace {

bool matches_any(std::span<const char* const> patterns, const std::string& name) {
    return std::ranges::any_of(
        patterns, [&](const char* pattern) { return ::fnmatch(pattern, name.c_str(), 0) == 0; });
}

}  // namespace

std::vector<std::string> config_files_of(const std::string& folder, std::error_code* error) {
    static constexpr std::array<const char*, 11> kPatterns = {"config.json",
                                                              "generation_config.json",
                                                              "tokenizer*",
                                                              "special_tokens_map.json",
                                                              "added_tokens.json",
                                                              "vocab.json",
                                                              "vocab.txt",
                                                              "merges.txt",
                                                              "spiece.model",
                                                              "chat_template.*",
                                                              "preprocessor_config.json"};
    std::vector<std::string> names;
    std::error_code gone;
    for (const fs::directory_entry& entry :
         fs::directory_iterator(folder, error == nullptr ? gone : *error)) {
        const std::string name = entry.path().filename().string();
        if (matches_any(kPatterns, name) && entry.is_regular_file(gone)) names.push_back(name);
    }
    // Chat templates other than the default one.
    constexpr const char* kMoreTemplates = "additional_chat_templates";
    for (const auto& entry : fs::directory_iterator(folder + "/" + kMoreTemplates, gone))
        if (entry.path().extension() == ".jinja")
            names.push_back(fmt::format("{}/{}", kMoreTemplates, entry.path().filename().string()));
    return names;
}

void write_weight_index(const std::string& path, Bytes all,
                        const std::map<std::string, std::string>& file_of) {
    JsonWriter json;
    json.begin_object().key("metadata").begin_object();
    json.field("total_size", all.value).end_object();
    json.key("weight_map").begin_object();
    for (const auto& [name, file] : file_of) json.field(name, file);
    json.end_object().end_object();
    write_atomically(path, json.text() + "\n");
}

bool is_derived_buffer(const std::string& name) {
    static constexpr std::array<const char*, 7> kDerived = {
        "*rotary_emb*.inv_freq", "*rotary_emb*.original_inv_freq",
        "*.attn.bias",           "*.attn.masked_bias",
        "*.attention.bias",      "*.attention.masked_bias",
        "*.position_ids"};
    return matches_any(kDerived, name);
}

}  // namespace dslaunch::storage

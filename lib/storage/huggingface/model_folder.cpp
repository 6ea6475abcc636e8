#include "storage/huggingface/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/path.h"
#include "base/text.h"
#include "base/text_bytes.h"
#include "storage/adapter/adapter_config.h"
#include "storage/files/mapped_file.h"

namespace dslaunch::storage {

namespace {

constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kIndex = "model.safetensors.index.json";

}  // namespace

std::optional<std::string> model_folder_of(const std::string& path) {
    std::error_code unreadable;
    const bool is_folder = std::filesystem::is_directory(path, unreadable);
    if (!is_folder && path.ends_with(".json")) return folder_of(path);
    if (is_folder && std::filesystem::exists(std::filesystem::path(path) / kConfig, unreadable))
        return path;
    return std::nullopt;
}

std::vector<std::string> safetensors_files_of(const std::string& folder) {
    const std::string index = fmt::format("{}/{}", folder, kIndex);
    const std::string single = fmt::format("{}/model.safetensors", folder);
    std::error_code ignored;
    if (!std::filesystem::exists(index, ignored)) {
        if (std::filesystem::exists(single, ignored)) return {single};
        return {};
    }
    std::ifstream in(index);
    const auto json = nlohmann::json::parse(in, nullptr, false);
    const auto map = json.is_object() ? json.find("weight_map") : json.end();
    if (json.is_discarded() || map == json.end() || !map->is_object())
        fail(ExitCode::kInput, "{}: is no JSON object with a weight_map", index);
    std::set<std::string> files;
    for (const auto& [tensor, file] : map->items()) {
        const std::string name = file.is_string() ? file.get<std::string>() : "";
        if (name.empty() || name.find('/') != std::string::npos)
            fail(ExitCode::kInput, "{}: `{}` is in no file of that folder", index,
                 printable(tensor));
        files.insert(fmt::format("{}/{}", folder, name));
    }
    if (!files.contains(single) && std::filesystem::exists(single, ignored))
        fail(ExitCode::kInput,
             "{}: lies beside {}, which names other files: nothing says which of the two is the "
             "model; remove the one that is not",
             printable(single), kIndex);
    return {files.begin(), files.end()};
}

void require_room_for_model(const std::string& folder) {
    std::error_code missing;
    for (const auto& entry : std::filesystem::directory_iterator(folder, missing)) {
        const std::string name = entry.path().filename().string();
        const bool is_shard = name.starts_with("model-") && name.ends_with(".safetensors") &&
                              name.find("-of-") != std::string::npos;
        if (name != kIndex && name != kAdapterConfig && !is_shard) continue;
        fail(ExitCode::kInput,
             "{}: is of another model, and would be read beside the model.safetensors that is "
             "written there, or instead of it: name an empty folder, or remove the older model",
             printable(entry.path().string()));
    }
}

ModelFolder open_model_folder(const std::string& path) {
    std::error_code unreadable;
    const bool is_folder = std::filesystem::is_directory(path, unreadable);
    ModelFolder folder;
    folder.config_path =
        is_folder ? (std::filesystem::path(path) / kConfig).lexically_normal().string() : path;
    const MappedFile file(folder.config_path);
    folder.config = parse_transformer_config(folder.config_path, text_in(file.bytes()));
    if (!is_folder) return folder;
    folder.weights = safetensors_files_of(path);
    const std::filesystem::path index = std::filesystem::path(path) / kIndex;
    if (std::filesystem::exists(index, unreadable)) folder.index_path = index.string();
    return folder;
}

std::vector<std::string> ModelFolder::files() const {
    std::vector<std::string> all = {config_path};
    if (!index_path.empty()) all.push_back(index_path);
    all.insert(all.end(), weights.begin(), weights.end());
    return all;
}

void require_weights(const ModelFolder& folder) {
    if (!folder.weights.empty()) return;
    const std::string place = folder_of(folder.config_path);
    std::error_code unreadable;
    for (const std::string_view pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
        if (std::filesystem::exists(std::filesystem::path(place) / pickle, unreadable))
            fail(ExitCode::kInput,
                 "{}: its weights are pickles ({}), which are not read; in Python: "
                 "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(FOLDER)",
                 printable(place), pickle);
    fail(ExitCode::kInput,
         "{}: has no weights: model.safetensors, or model.safetensors.index.json and what it "
         "names; `dslaunch plan` needs none",
         printable(place));
}

}  // namespace dslaunch::storage

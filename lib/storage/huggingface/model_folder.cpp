#include "storage/huggingface/model_folder.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/path.h"
#include "base/text.h"
#include "base/text/file_faults.h"
#include "base/text_bytes.h"
#include "storage/files/file_names.h"
#include "storage/files/mapped_file.h"
#include "storage/huggingface/text_part.h"
#include "storage/named/place.h"

namespace dslaunch::storage {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";

// Returns the files that the index at PATH in FOLDER names; they may be in folders below.
std::vector<std::string> files_of_index(const std::string& folder, const std::string& path) {
    const fs::path index = path;
    std::ifstream in(index);
    const auto json = nlohmann::json::parse(in, nullptr, false);
    const auto map = json.is_object() ? json.find("weight_map") : json.end();
    if (json.is_discarded() || map == json.end() || !map->is_object())
        fail(ExitCode::kInput, "{}: is not a JSON object with a weight_map", path);
    std::set<std::string> files;
    for (const auto& [tensor, file] : map->items()) {
        const fs::path name =
            fs::path(file.is_string() ? file.get<std::string>() : "").lexically_normal();
        if (!name.has_filename() || name.is_absolute() || *name.begin() == "..")
            fail(ExitCode::kInput, "{}: the file named for `{}` is not in the same folder", path,
                 printable(tensor));
        files.insert((fs::path(folder) / name).string());
    }
    return {files.begin(), files.end()};
}

}  // namespace

std::optional<std::string> model_folder_of(const std::string& path) {
    std::error_code unreadable;
    const bool is_folder = fs::is_directory(path, unreadable);
    if (!is_folder && path.ends_with(".json")) return folder_of(path);
    if (is_folder && fs::exists(fs::path(path) / kConfig, unreadable)) return path;
    return std::nullopt;
}

std::vector<std::string> safetensors_files_of(const std::string& folder) {
    const std::string index = fmt::format("{}/{}", folder, kIndex);
    const std::string single = fmt::format("{}/{}", folder, kSingle);
    std::error_code ignored;
    if (fs::exists(single, ignored)) return {single};
    if (fs::exists(index, ignored)) return files_of_index(folder, index);
    const std::string gguf = fmt::format("{}/{}", folder, kGgufOfFolder);
    if (fs::exists(gguf, ignored)) return {gguf};
    return {};
}

void require_room_for_model(const std::string& folder) {
    std::error_code missing;
    for (const auto& entry : fs::directory_iterator(folder, missing)) {
        const std::string name = entry.path().filename().string();
        const bool is_shard = name.starts_with("model-") && name.ends_with(".safetensors") &&
                              name.find("-of-") != std::string::npos;
        if (name != kIndex && name != kAdapterConfig && !is_shard) continue;
        fail(ExitCode::kInput,
             "{}: belongs to another model, and would be read together with the new "
             "model.safetensors, or instead of it: use an empty folder, or remove the older model",
             printable(entry.path().string()));
    }
}

ModelFolder open_model_folder(const std::string& path) {
    std::error_code unreadable;
    const bool is_folder = fs::is_directory(path, unreadable);
    ModelFolder folder;
    folder.config_path = is_folder ? (fs::path(path) / kConfig).lexically_normal().string() : path;
    const MappedFile file(folder.config_path);
    folder.config = parse_transformer_config(folder.config_path, text_in(file.bytes()));
    if (!is_folder) return folder;
    folder.weights = safetensors_files_of(path);
    const fs::path single = fs::path(path) / kSingle, index = fs::path(path) / kIndex;
    if (!fs::exists(single, unreadable) && fs::exists(index, unreadable))
        folder.index_path = index.string();
    if (folder.config.is_tied) folder.config.is_tied = !has_own_head(folder.config, folder.weights);
    return folder;
}

std::string config_for_weights(const std::string& path, std::string text) {
    try {
        return text_of_config(text, open_model_folder(path).config);
    } catch (const Error&) {
        return text;
    }
}

std::string architecture_text(const TransformerConfig& config) {
    if (config.outer.empty()) return config.architecture;
    return fmt::format("{}, the text part of a {}", config.architecture, config.outer);
}

std::vector<std::string> ModelFolder::files() const {
    std::vector<std::string> all = {config_path};
    if (!index_path.empty()) all.push_back(index_path);
    all.insert(all.end(), weights.begin(), weights.end());
    return all;
}

namespace {

// Refuses the folder PLACE if one of FILES is missing. FILES are the weight files that its index
// names.
void require_shards(const std::string& place, const std::vector<std::string>& files) {
    constexpr size_t kShownMax = 3;
    std::vector<std::string> missing;
    for (const std::string& file : files) {
        std::error_code unreadable;
        if (!fs::exists(file, unreadable))
            missing.push_back(printable(fs::path(file).filename().string()));
    }
    if (missing.empty()) return;
    const size_t count = missing.size();
    missing.resize(std::min(count, kShownMax));
    fail(ExitCode::kInput,
         "{}: {} of the {} files with its weights {} missing: {}{}; copy {} into the folder, or "
         "fetch what is missing: hf download ORG/{} --local-dir {}",
         printable(place), count, files.size(), count == 1 ? "is" : "are", join(missing, ", "),
         count > kShownMax ? ", …" : "", count == 1 ? "it" : "them",
         printable(fs::absolute(place).lexically_normal().filename().string()), printable(place));
}

}  // namespace

void require_weights(const ModelFolder& folder) {
    const std::string place = folder_of(folder.config_path);
    std::error_code unreadable;
    std::vector<std::string> files = folder.weights;
    for (const std::string_view name : {kSingle, kIndex, std::string_view("tokenizer.json"),
                                        std::string_view("tokenizer_config.json")})
        files.push_back(fmt::format("{}/{}", place, name));
    for (const std::string& file : files)
        if (const std::string fault = download_fault_at(file); !fault.empty())
            fail(ExitCode::kInput, "{}: {}", printable(file), fault);
    require_shards(place, folder.weights);
    if (!folder.weights.empty()) return;
    for (const std::string_view pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
        if (fs::exists(fs::path(place) / pickle, unreadable))
            fail(ExitCode::kInput,
                 "{}: its weights are pickles ({}), which are not supported; convert them in "
                 "Python: AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(FOLDER)",
                 printable(place), pickle);
    refuse_place(place_at(path_from_here(place)), PlaceUse::kModel);
}

namespace {

struct Found {
    std::shared_ptr<const MappedFile> file;  // both weights may be in one file
    SafetensorsEntry entry;
};

}  // namespace

std::string embedding_name(const TransformerConfig& config) {
    return fmt::format("{}.{}.weight", config.names.at("decoder"), config.names.at("embed"));
}

std::string head_name(const TransformerConfig& config) {
    return config.names.at("head") + ".weight";
}

std::optional<std::string> name_in_modules(const TransformerConfig& config,
                                           const std::string& stored) {
    if (config.outer.empty()) return stored;
    return name_in_text_model(stored, config.names.at("decoder"));
}

bool are_equal(const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return a.dtype == b.dtype && a.shape == b.shape && std::ranges::equal(a.bytes, b.bytes);
}

bool has_own_head(const TransformerConfig& config, const std::vector<std::string>& files) {
    const std::string head = head_name(config), embedding = embedding_name(config);
    // Some folders contain the decoder without the model around it.
    const std::string_view inner =
        std::string_view(embedding).substr(config.names.at("decoder").size() + 1);
    std::optional<Found> of_head, of_embedding;
    for (const std::string& path : files) {
        std::error_code unreadable;
        if (!fs::exists(path, unreadable)) continue;  // require_weights() reports it
        if (path.ends_with(kGgufOfFolder)) continue;  // config.json says whether the model is tied
        const auto file = std::make_shared<const MappedFile>(path);
        for (SafetensorsEntry& entry : parse_safetensors(path, file->bytes()).entries) {
            const std::optional<std::string> name = name_in_modules(config, entry.name);
            if (name == head) of_head = Found{file, std::move(entry)};
            if (name && (*name == embedding || *name == inner))
                of_embedding = Found{file, std::move(entry)};
        }
    }
    return of_head && of_embedding && !are_equal(of_head->entry, of_embedding->entry);
}

}  // namespace dslaunch::storage

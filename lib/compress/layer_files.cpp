#include "compress/layer_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "storage/files/atomic_file.h"

namespace dslaunch::compress {
namespace {

namespace fs = std::filesystem;
constexpr const char* kOptions = "options";
constexpr const char* kErrors = "errors";

bool is_layer_file(const std::string& name) {
    return name.starts_with("layer-") && name.ends_with(".safetensors");
}

}  // namespace

LayerFiles::LayerFiles(std::string folder, std::string options)
    : folder_(std::move(folder)), options_(std::move(options)) {
    storage::make_folder(folder_);
    bool has_others = false;
    std::error_code unreadable;
    for (const auto& entry : fs::directory_iterator(folder_, unreadable)) {
        if (!is_layer_file(entry.path().filename().string())) continue;
        try {
            const storage::SafetensorsFile file(entry.path().string());
            const auto found = file.metadata().find(kOptions);
            if (found != file.metadata().end() && found->second == options_) continue;
        } catch (const Error&) {
            // A file that cannot be read is made again.
        }
        has_others = true;
        fs::remove(entry.path(), unreadable);
    }
    if (has_others)
        log_info("compress", "{}: its layers were made with other options; all are made again",
                 folder_);
}

std::string LayerFiles::path(int64_t layer) const {
    return fmt::format("{}/layer-{:05}.safetensors", folder_, layer);
}

std::optional<WeightErrors> LayerFiles::finished(int64_t layer) const {
    std::error_code missing;
    if (!fs::exists(path(layer), missing)) return std::nullopt;
    const storage::SafetensorsFile file(path(layer));
    WeightErrors errors;
    const auto json = nlohmann::ordered_json::parse(file.metadata().at(kErrors));
    for (const auto& [name, error] : json.items()) errors.emplace_back(name, error.get<double>());
    return errors;
}

void LayerFiles::write(int64_t layer, const std::vector<PackedTensor>& tensors,
                       const WeightErrors& errors) const {
    std::vector<storage::SafetensorsEntry> entries;
    for (const PackedTensor& tensor : tensors) entries.push_back(tensor.entry);
    auto json = nlohmann::ordered_json::object();
    for (const auto& [name, error] : errors) json[name] = error;
    storage::SafetensorsWriter writer(path(layer), entries,
                                      {{kOptions, options_}, {kErrors, json.dump()}});
    for (size_t i = 0; i < tensors.size(); ++i) writer.write(i, tensors[i].bytes);
    writer.commit();
}

void LayerFiles::remove() const {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder_, ignored))
        if (is_layer_file(entry.path().filename().string())) fs::remove(entry.path(), ignored);
    fs::remove(folder_, ignored);
}

}  // namespace dslaunch::compress

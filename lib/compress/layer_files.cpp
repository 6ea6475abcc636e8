#include "compress/layer_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "storage/files/atomic_file.h"

namespace dslaunch::compress {
namespace {

namespace fs = std::filesystem;
constexpr const char* kOptions = "options";
constexpr const char* kErrors = "errors";

bool is_layer_file(const std::string& name) {
    return name.starts_with("layer-") && name.ends_with(".safetensors");
}

// The metadata of a layer's file.
struct LayerRecord {
    std::string options;
    WeightErrors errors;
};

// Returns nothing if the file is damaged.
std::optional<LayerRecord> read_record(const std::string& path) {
    try {
        const storage::SafetensorsFile file(path);
        LayerRecord record{file.metadata().at(kOptions), {}};
        const auto json = nlohmann::ordered_json::parse(file.metadata().at(kErrors));
        for (const auto& [name, error] : json.items())
            record.errors.push_back({name, error.at(0).get<double>(), error.at(1).get<bool>()});
        return record;
    } catch (const Error&) {
        return std::nullopt;
    } catch (const nlohmann::json::exception&) {
        return std::nullopt;
    } catch (const std::out_of_range&) {
        return std::nullopt;
    }
}

std::vector<std::string> layer_files_in(const std::string& folder) {
    std::vector<std::string> paths;
    std::error_code unreadable;
    for (const auto& entry : fs::directory_iterator(folder, unreadable))
        if (is_layer_file(entry.path().filename().string())) paths.push_back(entry.path().string());
    return paths;
}

}  // namespace

LayerFiles::LayerFiles(std::string folder, std::string options)
    : folder_(std::move(folder)), options_(std::move(options)) {
    storage::make_folder(folder_);
    int64_t others = 0, damaged = 0;
    std::error_code unreadable;
    for (const std::string& path : layer_files_in(folder_)) {
        const std::optional<LayerRecord> record = read_record(path);
        if (record && record->options == options_) continue;
        ++(record ? others : damaged);
        fs::remove(path, unreadable);
    }
    if (others > 0)
        log_warn("compress", "{}: {} made with other options or of another model: made again",
                 folder_, counted(others, "finished layer"));
    if (damaged > 0)
        log_warn("compress", "{}: {} cannot be read: made again", folder_,
                 counted(damaged, "finished layer"));
}

bool LayerFiles::has_layers(const std::string& folder, const std::string& options) {
    for (const std::string& path : layer_files_in(folder))
        if (const auto record = read_record(path); record && record->options == options)
            return true;
    return false;
}

int64_t LayerFiles::other_layers(const std::string& folder, const std::string& options) {
    return std::ranges::count_if(layer_files_in(folder), [&](const std::string& path) {
        const auto record = read_record(path);
        return record && record->options != options;
    });
}

std::string LayerFiles::path(int64_t layer) const {
    return fmt::format("{}/layer-{:05}.safetensors", folder_, layer);
}

std::optional<WeightErrors> LayerFiles::finished(int64_t layer) const {
    std::error_code missing;
    if (!fs::exists(path(layer), missing)) return std::nullopt;
    std::optional<LayerRecord> record = read_record(path(layer));
    if (!record || record->options != options_) return std::nullopt;
    return std::move(record->errors);
}

void LayerFiles::write(int64_t layer, const std::vector<PackedTensor>& tensors,
                       const WeightErrors& errors) const {
    std::vector<storage::SafetensorsEntry> entries;
    for (const PackedTensor& tensor : tensors) entries.push_back(tensor.entry);
    auto json = nlohmann::ordered_json::object();
    for (const WeightError& weight : errors)
        json[weight.name] = {weight.error, weight.is_of_outputs};
    storage::SafetensorsWriter writer(path(layer), entries,
                                      {{kOptions, options_}, {kErrors, json.dump()}});
    for (size_t i = 0; i < tensors.size(); ++i) writer.write(i, tensors[i].bytes);
    writer.commit();
}

void LayerFiles::remove() const {
    std::error_code ignored;
    for (const std::string& path : layer_files_in(folder_)) fs::remove(path, ignored);
    fs::remove(folder_, ignored);
}

}  // namespace dslaunch::compress

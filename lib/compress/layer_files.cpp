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

// Counts the layer at PATH in FOUND. Returns true if a run with OPTIONS has finished it.
bool note_layer(const std::string& path, const std::string& options, LayerFiles::Found& found) {
    const std::optional<LayerRecord> record = read_record(path);
    const bool is_own = record && record->options == options;
    ++(is_own ? found.own : record ? found.others : found.damaged);
    return is_own;
}

}  // namespace

LayerFiles::LayerFiles(std::string folder, std::string options)
    : folder_(std::move(folder)), options_(std::move(options)) {
    storage::make_folder(folder_);
    Found found;
    std::error_code unreadable;
    for (const std::string& path : layer_files_in(folder_))
        if (!note_layer(path, options_, found)) fs::remove(path, unreadable);
    if (found.others > 0)
        log_warn("compress",
                 "{}: removed {} made with other options or from another model: dslaunch computes "
                 "these layers again",
                 folder_, counted(found.others, "finished layer"));
    if (found.damaged > 0)
        log_warn("compress", "{}: {} cannot be read: dslaunch computes these layers again", folder_,
                 counted(found.damaged, "finished layer"));
}

LayerFiles::Found LayerFiles::find(const std::string& folder, const std::string& options) {
    Found found;
    for (const std::string& path : layer_files_in(folder))
        static_cast<void>(note_layer(path, options, found));
    return found;
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

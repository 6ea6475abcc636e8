#include "graph/archive/kept_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "base/text_bytes.h"
#include "storage/files/atomic_file.h"
#include "storage/huggingface/transformer_config.h"

namespace dslaunch::graph {

namespace {

using storage::TransformerConfig;
using storage::TransformerLayer;

constexpr const char* kKey = "compression_training.layer_reduction";

bool are_alike(const std::vector<TransformerLayer>& layers) {
    return std::ranges::all_of(layers, [&](const TransformerLayer& layer) {
        const TransformerLayer& first = layers.front();
        return layer.has_window == first.has_window && layer.has_experts == first.has_experts &&
               layer.turns == first.turns;
    });
}

// Returns TEXT, a config.json, with COUNT layers.
std::string with_count(const std::string& text, int64_t count) {
    auto json = nlohmann::ordered_json::parse(text);
    for (const char* key : {"num_hidden_layers", "n_layer"})
        if (json.contains(key)) json[key] = count;
    for (const char* key : {"layer_types", "no_rope_layers"})
        if (json.contains(key) && json[key].is_array())
            while (std::ssize(json[key]) > count) json[key].erase(json[key].size() - 1);
    return json.dump(2) + "\n";
}

std::string name_of_layers(const TransformerConfig& config) {
    return fmt::format("{}.{}", config.names.at("decoder"), config.names.at("layers"));
}

}  // namespace

void require_layers_named(const std::string& path, const std::string& prefix) {
    if (!storage::model_folder_of(path))
        fail(ExitCode::kConfig,
             "{}.enabled: only a Hugging Face folder can keep some of its own layers, but {} is "
             "not such a folder: set dslaunch.distill.teacher to the path of a teacher, from which "
             "the layers are copied",
             kKey, printable(path));
    const storage::ModelFolder folder = storage::open_model_folder(path);
    const std::string name = name_of_layers(folder.config);
    if (prefix != name)
        fail(ExitCode::kConfig, "{}.module_name_prefix: is `{}`, but the layers of {} are `{}`",
             kKey, printable(prefix), printable(folder.config_path), name);
}

KeptLayers::KeptLayers(const storage::ModelFolder& folder, std::vector<int64_t> layers)
    : config_(folder.config),
      layers_(std::move(layers)),
      prefix_(name_of_layers(folder.config) + ".") {
    const int64_t count = std::ssize(config_.layers);
    for (const int64_t layer : layers_) {
        if (layer >= count)
            fail(ExitCode::kConfig,
                 "{}.teacher_layer: {} has {} layers, so that there is no layer {}", kKey,
                 printable(folder.config_path), count, layer);
        if (std::ranges::count(layers_, layer) > 1)
            fail(
                ExitCode::kConfig,
                "{}.teacher_layer: names layer {} twice, which without dslaunch.distill.teacher is "
                "not supported",
                kKey, layer);
    }
    if (!are_alike(config_.layers))
        fail(ExitCode::kConfig,
             "{}: the layers of {} differ in windows, experts or positions, and a config.json "
             "cannot describe a model with only some of these layers: set dslaunch.distill.teacher "
             "to this folder, and train a smaller model",
             kKey, printable(folder.config_path));
}

TransformerConfig KeptLayers::config() const {
    TransformerConfig smaller = config_;
    smaller.layers.resize(layers_.size());
    return smaller;
}

int64_t KeptLayers::layer_of(const std::string& name) const {
    if (!name.starts_with(prefix_)) return -1;
    const char* const begin = name.data() + prefix_.size();
    int64_t layer = -1;
    const auto [end, error] = std::from_chars(begin, name.data() + name.size(), layer);
    return error == std::errc() && end != name.data() + name.size() && *end == '.' ? layer : -1;
}

std::string KeptLayers::name_in_folder(const std::string& name) const {
    const int64_t layer = layer_of(name);
    if (layer < 0) return name;
    const size_t rest = name.find('.', prefix_.size());
    return fmt::format("{}{}{}", prefix_, layers_.at(static_cast<size_t>(layer)),
                       name.substr(rest));
}

bool KeptLayers::is_left(const std::string& name) const {
    const int64_t layer = layer_of(name);
    return layer >= 0 && std::ranges::find(layers_, layer) == layers_.end();
}

void write_fewer_layers(const std::string& folder, int64_t count) {
    constexpr size_t kConfigMax = size_t{1} << 24;
    const std::string path = folder + "/config.json";
    const std::string text = with_count(read_file(path, kConfigMax), count);
    const TransformerConfig config = storage::parse_transformer_config(path, text);
    if (std::ssize(config.layers) != count || !are_alike(config.layers))
        fail(ExitCode::kInput, "{}: cannot describe a model with only {} of the layers",
             printable(path), count);
    storage::write_atomically(path, text);
}

}  // namespace dslaunch::graph

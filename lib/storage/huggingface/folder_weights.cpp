#include "storage/huggingface/folder_weights.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::storage {

namespace {

bool is_trained_dtype(DType dtype) {
    return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

}  // namespace

std::string shape_text(std::span<const int64_t> sizes) {
    std::vector<std::string> parts;
    for (const int64_t size : sizes) parts.push_back(std::to_string(size));
    return fmt::format("[{}]", join(parts, ", "));
}

FolderWeights::FolderWeights(const ModelFolder& folder, MapMode mode) : folder_(folder) {
    for (const std::string& path : folder.weights) {
        auto file = std::make_shared<const MappedFile>(path, mode);
        for (SafetensorsEntry& entry : parse_safetensors(path, file->bytes()).entries) {
            const std::string name = entry.name;
            if (!weights_.emplace(name, Weight{{file, std::move(entry)}, false}).second)
                fail(ExitCode::kInput, "{}: tensor `{}` is in another file of the folder too", path,
                     printable(name));
        }
        files_.push_back(std::move(file));
    }
}

// Some folders hold the decoder without the model around it.
FolderWeights::Weight* FolderWeights::find(const std::string& name) {
    const std::string outer = folder_.config.names.at("decoder") + ".";
    auto found = weights_.find(name);
    if (found == weights_.end() && name.starts_with(outer))
        found = weights_.find(name.substr(outer.size()));
    return found == weights_.end() ? nullptr : &found->second;
}

FolderWeight FolderWeights::take(const std::string& name, std::span<const int64_t> sizes) {
    Weight* weight = find(name);
    if (weight == nullptr)
        fail(ExitCode::kInput, "{}: no weight `{}`, which a {} has", folder_.config_path,
             printable(name), folder_.config.architecture);
    const auto& [file, entry] = weight->found;
    if (!std::ranges::equal(entry.shape, sizes))
        fail(ExitCode::kInput, "{}: tensor `{}` is {}, and by config.json it is {}", file->path(),
             printable(entry.name), shape_text(entry.shape), shape_text(sizes));
    if (!is_trained_dtype(entry.dtype))
        fail(ExitCode::kInput,
             "{}: tensor `{}` has numbers of type {}: quantized weights are not read; take the "
             "folder of the model in 16 or 32 bits",
             file->path(), printable(entry.name), dtype_name(entry.dtype));
    weight->taken = true;
    return weight->found;
}

void FolderWeights::require_all_taken() const {
    for (const auto& [name, weight] : weights_)
        if (!weight.taken && !is_known_extra(name))
            fail(ExitCode::kInput,
                 "{}: tensor `{}` belongs to no module of a {}: the folder's files are not those "
                 "of its config.json, or the model was changed",
                 weight.found.file->path(), printable(name), folder_.config.architecture);
}

// Buffers that older releases of transformers saved, and the output layer that is the embedding.
bool FolderWeights::is_known_extra(const std::string& name) const {
    constexpr std::array<std::string_view, 5> kEndings = {"rotary_emb.inv_freq", ".attn.bias",
                                                          ".attn.masked_bias", ".attention.bias",
                                                          ".attention.masked_bias"};
    if (folder_.config.tied && name == folder_.config.names.at("head") + ".weight") return true;
    return std::ranges::any_of(kEndings,
                               [&](std::string_view ending) { return name.ends_with(ending); });
}

}  // namespace dslaunch::storage

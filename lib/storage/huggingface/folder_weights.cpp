#include "storage/huggingface/folder_weights.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "storage/huggingface/derived_buffers.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::storage {

namespace {

bool is_trained_dtype(DType dtype) {
    return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

// Returns WEIGHT, which is float64, as float32.
FolderWeight in_fp32(const FolderWeight& weight) {
    const std::span<const std::byte> from = weight.entry.bytes;
    auto made = std::make_shared<std::vector<float>>(from.size() / sizeof(double));
    for (size_t i = 0; i < made->size(); ++i) {
        double number = 0;
        std::memcpy(&number, from.data() + i * sizeof number, sizeof number);
        (*made)[i] = static_cast<float>(number);
    }
    FolderWeight single{nullptr, weight.entry, made};
    single.entry.dtype = DType::kF32;
    single.entry.bytes = std::as_bytes(std::span(*made));
    return single;
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
        for (SafetensorsEntry& entry : parse_safetensors(path, file->bytes()).entries)
            add(file, std::move(entry));
        files_.push_back(std::move(file));
    }
}

void FolderWeights::add(const std::shared_ptr<const MappedFile>& file, SafetensorsEntry entry) {
    const std::optional<std::string> name = name_in_modules(folder_.config, entry.name);
    if (!name) return;
    const auto found = weights_.find(*name);
    if (found != weights_.end() && !are_equal(found->second.found.entry, entry))
        fail(ExitCode::kInput,
             "{}: tensor `{}` is also in another file of the folder, with different values",
             file->path(), printable(entry.name));
    weights_.emplace(*name, Weight{{file, std::move(entry)}, false});
}

// Finds NAME with or without the decoder's prefix: some folders contain only the decoder.
FolderWeights::Weight* FolderWeights::find(const std::string& name) {
    const std::string outer = folder_.config.names.at("decoder") + ".";
    auto found = weights_.find(name);
    if (found == weights_.end() && name.starts_with(outer))
        found = weights_.find(name.substr(outer.size()));
    return found == weights_.end() ? nullptr : &found->second;
}

void FolderWeights::fail_missing(const std::string& name) const {
    fail(ExitCode::kInput, "{}: the folder has no weight `{}`, which a {} needs{}",
         folder_.config_path, printable(name), folder_.config.architecture,
         name == head_name(folder_.config) ? "; if its output layer shares its embedding, set "
                                             "\"tie_word_embeddings\": true in config.json"
                                           : "");
}

FolderWeight FolderWeights::take(const std::string& name, std::span<const int64_t> sizes) {
    Weight* weight = find(name);
    if (weight == nullptr && folder_.config.is_tied && name == embedding_name(folder_.config))
        weight = find(head_name(folder_.config));
    if (weight == nullptr) fail_missing(name);
    const SafetensorsEntry& entry = weight->found.entry;
    const std::string& file = weight->found.file->path();
    if (!std::ranges::equal(entry.shape, sizes))
        fail(ExitCode::kInput, "{}: tensor `{}` has shape {}, but by config.json it must have {}",
             file, printable(entry.name), shape_text(entry.shape), shape_text(sizes));
    weight->is_taken = true;
    if (entry.dtype == DType::kF64) return in_fp32(weight->found);
    if (!is_trained_dtype(entry.dtype))
        fail(ExitCode::kInput,
             "{}: tensor `{}` has type {}: quantized weights are not supported; use the folder of "
             "the model in 16 or 32 bits",
             file, printable(entry.name), dtype_name(entry.dtype));
    return weight->found;
}

void FolderWeights::require_all_taken() const {
    for (const auto& [name, weight] : weights_)
        if (!weight.is_taken && !is_derived_buffer(name) &&
            !(folder_.config.is_tied && name == head_name(folder_.config)))
            fail(ExitCode::kInput,
                 "{}: tensor `{}` belongs to no module of a {}: the folder's weights do not match "
                 "its config.json, or the model was changed",
                 weight.found.file->path(), printable(name), folder_.config.architecture);
}

}  // namespace dslaunch::storage

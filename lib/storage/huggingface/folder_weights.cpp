#include "storage/huggingface/folder_weights.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/kinds/half_arrays.h"
#include "base/kinds/shape_text.h"
#include "base/text.h"
#include "storage/gguf/gguf_file.h"
#include "storage/huggingface/folder_files.h"
#include "storage/huggingface/gguf_names.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::storage {

namespace {

bool is_trained_dtype(DType dtype) {
    return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

FolderWeight made_of(const FolderWeight& weight, DType dtype, std::vector<std::byte> bytes) {
    const auto made = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
    FolderWeight other{nullptr, weight.entry, made};
    other.entry.dtype = dtype;
    other.entry.bytes = *made;
    return other;
}

// Returns WEIGHT, which is float64, as float32.
FolderWeight in_fp32(const FolderWeight& weight) {
    const std::span<const std::byte> from = weight.entry.bytes;
    std::vector<std::byte> made(from.size() / sizeof(double) * sizeof(float));
    for (size_t i = 0; i < from.size() / sizeof(double); ++i) {
        double number = 0;
        std::memcpy(&number, from.data() + i * sizeof number, sizeof number);
        const auto single = static_cast<float>(number);
        std::memcpy(made.data() + i * sizeof single, &single, sizeof single);
    }
    return made_of(weight, DType::kF32, std::move(made));
}

// Returns WEIGHT with the numbers of the quantized weight ROUNDED, converted to DTYPE.
FolderWeight read_rounded(const FolderWeight& weight, const QuantizedWeight& rounded, DType dtype) {
    const int64_t rows = rounded.shape()[0], columns = rounded.shape()[1];
    std::vector<std::byte> made(static_cast<size_t>(rows * columns * dtype_bytes(dtype)));
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t r = 0; r < rows; ++r) {
        rounded.read_row(r, row);
        from_fp32(row.data(), dtype, columns, made.data() + r * columns * dtype_bytes(dtype));
    }
    return made_of(weight, dtype, std::move(made));
}

}  // namespace

FolderWeights::FolderWeights(const ModelFolder& folder, MapMode mode) : folder_(folder) {
    for (const std::string& path : folder.weights) {
        if (path.ends_with(kGgufOfFolder)) {
            add_gguf(path);
            continue;
        }
        auto file = std::make_shared<const MappedFile>(path, mode);
        for (SafetensorsEntry& entry : parse_safetensors(path, file->bytes()).entries)
            add(file, std::move(entry));
        files_.push_back(std::move(file));
    }
    if (folder.config.quantization) gather_rounded(*folder.config.quantization);
}

void FolderWeights::add_gguf(const std::string& path) {
    const auto gguf = std::make_shared<const GgufFile>(path);
    const std::shared_ptr<const MappedFile> file(gguf, &gguf->file());
    for (GgufModuleWeight& weight : weights_in_gguf(gguf, folder_.config)) {
        const DType dtype = weight.is_exact ? DType::kF32 : folder_.config.dtype;
        FolderWeight found{file, {weight.name, dtype, std::move(weight.sizes), {}}};
        weights_.emplace(weight.name,
                         Weight{std::move(found), false, nullptr, std::move(weight.read)});
    }
    files_.push_back(file);
}

// Replaces the tensors that together store a rounded weight by one entry with the weight's name.
void FolderWeights::gather_rounded(const Quantization& how) {
    std::map<std::string, QuantizedParts> modules;
    for (const auto& [name, weight] : weights_) {
        const size_t dot = name.rfind('.');
        if (dot == std::string::npos) continue;
        const std::string suffix = name.substr(dot + 1);
        const DType dtype = weight.found.entry.dtype;
        const bool has_codes =
            suffix == "weight" && (dtype == DType::kI8 || dtype == DType::kF8E4M3);
        if (has_codes || is_quantized_part(how.method, suffix))
            modules[name.substr(0, dot)].emplace(
                suffix, QuantizedPart{weight.found.file, weight.found.entry});
    }
    for (auto& [module, parts] : modules) {
        for (const auto& [suffix, part] : parts) weights_.erase(module + "." + suffix);
        const auto rounded = std::make_shared<const QuantizedWeight>(how, module, std::move(parts));
        FolderWeight found{rounded->codes().file, rounded->codes().entry};
        found.entry.name = module + ".weight";
        found.entry.shape = rounded->shape();
        found.entry.bytes = {};
        if (!weights_.emplace(found.entry.name, Weight{found, false, rounded}).second)
            fail(ExitCode::kInput,
                 "{}: `{}` is stored twice: as a quantized and as an unquantized weight",
                 found.file->path(), printable(found.entry.name));
    }
}

const SafetensorsEntry* FolderWeights::stored(const std::string& name) {
    const Weight* const weight = find(name);
    const bool is_stored = weight != nullptr && !weight->rounded && !weight->read;
    return is_stored ? &weight->found.entry : nullptr;
}

bool FolderWeights::is_rounded(const std::string& name) {
    const Weight* const weight = find(name);
    return weight != nullptr && weight->rounded != nullptr;
}

void FolderWeights::add(const std::shared_ptr<const MappedFile>& file, SafetensorsEntry entry) {
    const std::optional<std::string> name = name_in_modules(folder_.config, entry.name);
    if (!name) return;
    const auto found = weights_.find(*name);
    if (found != weights_.end() && !are_equal(found->second.found.entry, entry))
        fail(ExitCode::kInput,
             "{}: tensor `{}` is also in another file of the folder, with different values",
             file->path(), printable(entry.name));
    weights_.emplace(*name, Weight{{file, std::move(entry)}, false, nullptr});
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
    if (weight->read) {
        const std::vector<float> numbers = weight->read();
        std::vector<std::byte> made(numbers.size() * static_cast<size_t>(dtype_bytes(entry.dtype)));
        from_fp32(numbers.data(), entry.dtype, std::ssize(numbers), made.data());
        return made_of(weight->found, entry.dtype, std::move(made));
    }
    if (weight->rounded) return read_rounded(weight->found, *weight->rounded, folder_.config.dtype);
    if (entry.dtype == DType::kF64) return in_fp32(weight->found);
    if (!is_trained_dtype(entry.dtype))
        fail(ExitCode::kInput,
             "{}: tensor `{}` has type {}, but config.json has no quantization_config that says "
             "what its numbers mean; use the folder of the model in 16 or 32 bits",
             file, printable(entry.name), dtype_name(entry.dtype));
    return weight->found;
}

void FolderWeights::leave(const std::function<bool(const std::string& name)>& is_left) {
    for (auto& [name, weight] : weights_) weight.is_taken |= is_left(name);
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

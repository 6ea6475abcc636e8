#include "storage/gguf_model/gguf_model_reader.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/half_bits.h"
#include "base/machine/files_of_process.h"
#include "base/new_files.h"
#include "base/text.h"
#include "storage/files/atomic_file.h"
#include "storage/files/safetensors.h"
#include "storage/gguf/gguf_file.h"
#include "storage/gguf_model/gguf_config.h"
#include "storage/gguf_model/gguf_tokenizer.h"
#include "storage/huggingface/folder_files.h"
#include "storage/huggingface/gguf_names.h"
#include "storage/huggingface/model_folder.h"
#include "storage/huggingface/transformer_config.h"

namespace dslaunch::storage {
namespace {

namespace fs = std::filesystem;

// A file of the folder.
struct NamedText {
    const char* name;
    std::string text;
};

// A file, checked as a model.
struct OpenedModel {
    std::shared_ptr<const GgufFile> file;  // shared with the weights that are read from it
    TransformerConfig config;
    std::vector<GgufModuleWeight> weights;
    std::vector<NamedText> texts;
};

// Throws Error{kInput} naming the tensor if FILE lacks a tensor of the model, or contains a tensor
// that the model does not have.
void require_whole(const GgufFile& file, const TransformerConfig& config,
                   std::span<const GgufModuleWeight> found) {
    std::set<std::string, std::less<>> there;
    for (const GgufModuleWeight& weight : found) there.insert(weight.name);
    const std::string& path = file.metadata().path();
    for (const GgufWeight& weight : gguf_weights(config, gguf_family_of(config, path)))
        for (const std::string& name : weight.names)
            if (there.erase(name) == 0)
                fail(ExitCode::kInput, "{}: has no tensor `{}`, which a {} needs", printable(path),
                     printable(weight.tensor), config.architecture);
    if (!there.empty())
        fail(ExitCode::kInput,
             "{}: the tensor `{}` belongs to no part of a {} that this version knows",
             printable(path), printable(*there.begin()), config.architecture);
}

// DTYPE: the type of the weights that config.json names; nothing: FILE's own.
OpenedModel open(const std::string& path, std::optional<DType> dtype) {
    OpenedModel model;
    model.file = std::make_shared<const GgufFile>(path);
    const GgufMetadata& values = model.file->metadata();
    if (values.has("split.count") && values.integer("split.count") > 1)
        values.refuse("split.count",
                      "says that the model is split over several files, which is not supported; "
                      "join them with llama.cpp's gguf-split --merge");
    const std::string config = config_of_gguf(model.file->content(), dtype);
    model.config = parse_transformer_config(path, config);
    model.config.is_tied = model.file->content().find("output.weight") == nullptr;
    TokenizerTexts texts = tokenizer_of_gguf(model.file->content());
    model.weights = weights_in_gguf(model.file, model.config);
    require_whole(*model.file, model.config, model.weights);
    model.texts.push_back({"config.json", config});
    if (!texts.tokenizer.empty()) {
        model.texts.push_back({"tokenizer.json", std::move(texts.tokenizer)});
        model.texts.push_back({"tokenizer_config.json", std::move(texts.tokenizer_config)});
    }
    model.texts.push_back({"generation_config.json", std::move(texts.generation)});
    return model;
}

// Throws Error{kInput} if STORED is not finite. NUMBER is an element of the tensor NAME, and STORED
// is NUMBER converted to DTYPE.
void require_finite(float number, float stored, DType dtype, const std::string& name) {
    if (std::isfinite(stored)) return;
    if (std::isfinite(number))
        fail(ExitCode::kInput,
             "the weight `{}` has the number {}, which {} cannot hold; choose "
             "another --dtype",
             printable(name), number, dtype_name(dtype));
    fail(ExitCode::kInput, "the weight `{}` has a number that is not finite", printable(name));
}

// Returns NUMBERS, the weight NAME, as DTYPE.
std::vector<std::byte> bytes_of(std::span<const float> numbers, DType dtype,
                                const std::string& name) {
    std::vector<std::byte> bytes(numbers.size() * static_cast<size_t>(dtype_bytes(dtype)));
    if (dtype == DType::kF32) {
        for (const float number : numbers) require_finite(number, number, dtype, name);
        if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
        return bytes;
    }
    for (size_t i = 0; i < numbers.size(); ++i) {
        const bool is_bf16 = dtype == DType::kBF16;
        const uint16_t half = is_bf16 ? bf16_of(numbers[i]) : fp16_of(numbers[i]);
        require_finite(numbers[i], is_bf16 ? fp32_of_bf16(half) : fp32_of_fp16(half), dtype, name);
        std::memcpy(bytes.data() + i * sizeof half, &half, sizeof half);
    }
    return bytes;
}

// Removes an earlier model's files from FOLDER, the weights first. A folder that is not finished
// then has no weights, and never mixes texts of two models.
void remove_old_model(const std::string& folder) {
    std::vector<std::string> names = {"model.safetensors", kWeightIndex};
    for (std::string& name : config_files_of(folder)) names.push_back(std::move(name));
    for (const std::string& name : names) {
        std::error_code error;
        const std::string path = fmt::format("{}/{}", folder, name);
        fs::remove(path, error);
        if (error) fail(ExitCode::kDisk, "{}: {}", printable(path), error.message());
    }
}

}  // namespace

int64_t import_gguf(const std::string& path, const std::string& folder,
                    const GgufImportOptions& options) {
    const OpenedModel model = open(path, options.dtype);
    const std::vector<GgufModuleWeight>& weights = model.weights;
    std::vector<SafetensorsEntry> entries;
    for (const GgufModuleWeight& weight : weights)
        entries.push_back({weight.name, options.dtype, weight.sizes, {}});
    make_folder(folder);
    remove_old_model(folder);
    for (const NamedText& one : model.texts)
        write_file_atomically(fmt::format("{}/{}", folder, one.name), one.text);
    SafetensorsWriter writer(folder + "/model.safetensors", entries, {{"format", "pt"}});
    int64_t numel = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
        const std::vector<float> numbers = weights[i].read();
        numel += std::ssize(numbers);
        writer.write(i, bytes_of(numbers, options.dtype, weights[i].name));
        if (options.progress) options.progress(static_cast<int64_t>(i) + 1, std::ssize(weights));
    }
    writer.commit();
    return numel;
}

GgufFolder::GgufFolder(const std::string& path) {
    const OpenedModel model = open(path, std::nullopt);
    std::error_code error;
    std::string pattern = (fs::temp_directory_path(error) / "dslaunch-gguf-XXXXXX").string();
    if (error || ::mkdtemp(pattern.data()) == nullptr)
        fail(ExitCode::kDisk, "{}: cannot make a folder: {}", printable(pattern),
             errno_text(error ? error.value() : errno));
    folder_ = pattern;
    try {
        const std::string link = folder_ + "/" + std::string(kGgufOfFolder);
        fs::create_symlink(fs::absolute(path), link);
        listed_.push_back(add_file_of_process(link, /*with_folder=*/true));
        for (const NamedText& one : model.texts) {
            const std::string name = fmt::format("{}/{}", folder_, one.name);
            write_file_atomically(name, one.text);
            listed_.push_back(add_file_of_process(name, /*with_folder=*/true));
        }
    } catch (const fs::filesystem_error& problem) {
        remove();
        fail(ExitCode::kDisk, "{}: {}", printable(folder_), problem.code().message());
    } catch (...) {
        remove();
        throw;
    }
}

GgufFolder::~GgufFolder() {
    remove();
}

void GgufFolder::remove() noexcept {
    for (FileOfProcess* const file : listed_) forget_file_of_process(file);
    listed_.clear();
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
}

}  // namespace dslaunch::storage

#include "graph/archive/huggingface_folder.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/StorageImpl.h>
#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "graph/archive/scalar_types.h"
#include "graph/models/transformer.h"
#include "storage/files/mapped_file.h"
#include "storage/files/safetensors.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::graph {

namespace {

using storage::MappedFile;
using storage::SafetensorsEntry;

at::Tensor tensor_of(at::DataPtr data, size_t bytes, DType dtype, at::IntArrayRef sizes) {
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), nullptr,
                         /*resizable=*/false);
    at::Tensor tensor = at::empty({0}, at::TensorOptions(scalar_type_of(dtype)));
    std::vector<int64_t> strides(sizes.size(), 1);
    for (size_t i = sizes.size(); i > 1; --i) strides[i - 2] = strides[i - 1] * sizes[i - 1];
    tensor.set_(storage, 0, sizes, strides);
    return tensor;
}

std::string shape_text(at::IntArrayRef sizes) {
    std::vector<std::string> parts;
    for (const int64_t size : sizes) parts.push_back(std::to_string(size));
    return fmt::format("[{}]", join(parts, ", "));
}

// Weights by name, taken once each.
class FolderWeights {
  public:
    explicit FolderWeights(const storage::ModelFolder& folder) : folder_(folder) {
        for (const std::string& path : folder.weights) {
            auto file = std::make_shared<const MappedFile>(path, storage::MapMode::kCopyOnWrite);
            for (SafetensorsEntry& entry :
                 storage::parse_safetensors(path, file->bytes()).entries) {
                const std::string name = entry.name;
                if (!weights_.emplace(name, Weight{file, std::move(entry), false}).second)
                    fail(ExitCode::kInput, "{}: tensor `{}` is in another file of the folder too",
                         path, printable(name));
            }
            files_.push_back(std::move(file));
        }
    }

    at::Tensor take(const std::string& name, at::IntArrayRef sizes) {
        Weight* weight = find(name);
        if (weight == nullptr)
            fail(ExitCode::kInput, "{}: no weight `{}`, which a {} has", folder_.config_path,
                 printable(name), folder_.config.architecture);
        const SafetensorsEntry& entry = weight->entry;
        if (at::IntArrayRef(entry.shape) != sizes)
            fail(ExitCode::kInput, "{}: tensor `{}` is {}, and by config.json it is {}",
                 weight->file->path(), printable(entry.name), shape_text(entry.shape),
                 shape_text(sizes));
        if (!is_float(entry.dtype))
            fail(ExitCode::kInput,
                 "{}: tensor `{}` has numbers of type {}: quantized weights are not trained; take "
                 "the folder of the model in 16 or 32 bits",
                 weight->file->path(), printable(entry.name), dtype_name(entry.dtype));
        weight->taken = true;
        return lie_in(*weight, sizes);
    }

    // Throws for a weight that nobody took and that no release of the families has beside those.
    void require_all_taken() const {
        for (const auto& [name, weight] : weights_)
            if (!weight.taken && !is_known_extra(name))
                fail(ExitCode::kInput,
                     "{}: tensor `{}` belongs to no module of a {}: the folder's files are not "
                     "those of its config.json, or the model was changed",
                     weight.file->path(), printable(name), folder_.config.architecture);
    }

    std::vector<std::shared_ptr<const MappedFile>> files() { return std::move(files_); }

  private:
    struct Weight {
        std::shared_ptr<const MappedFile> file;
        SafetensorsEntry entry;
        bool taken = false;
    };

    static bool is_float(DType dtype) {
        return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
    }

    // Some folders hold the decoder without the model around it.
    Weight* find(const std::string& name) {
        const std::string outer = folder_.config.names.at("decoder") + ".";
        auto found = weights_.find(name);
        if (found == weights_.end() && name.starts_with(outer))
            found = weights_.find(name.substr(outer.size()));
        return found == weights_.end() ? nullptr : &found->second;
    }

    // Buffers that older releases of transformers saved, and the output layer that is the
    // embedding.
    bool is_known_extra(const std::string& name) const {
        constexpr std::array<std::string_view, 5> kEndings = {
            "rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias",
            ".attention.masked_bias"};
        if (folder_.config.tied && name == folder_.config.names.at("head") + ".weight") return true;
        return std::ranges::any_of(kEndings,
                                   [&](std::string_view ending) { return name.ends_with(ending); });
    }

    // A tensor in the mapping; a copy where its elements are not aligned.
    static at::Tensor lie_in(const Weight& weight, at::IntArrayRef sizes) {
        const std::span<const std::byte> bytes = weight.entry.bytes;
        const auto address = reinterpret_cast<uintptr_t>(bytes.data());
        if (address % static_cast<uintptr_t>(dtype_bytes(weight.entry.dtype)) != 0) {
            at::DataPtr copy = c10::GetAllocator(at::kCPU)->allocate(bytes.size());
            std::memcpy(copy.get(), bytes.data(), bytes.size());
            return tensor_of(std::move(copy), bytes.size(), weight.entry.dtype, sizes);
        }
        const auto give_back = [file = weight.file, bytes](void*) { file->discard(bytes); };
        at::DataPtr lent = c10::InefficientStdFunctionContext::makeDataPtr(
            const_cast<std::byte*>(bytes.data()), give_back, at::kCPU);
        return tensor_of(std::move(lent), bytes.size(), weight.entry.dtype, sizes);
    }

    const storage::ModelFolder& folder_;
    std::vector<std::shared_ptr<const MappedFile>> files_;
    std::map<std::string, Weight> weights_;
};

// Pages that nobody writes are the system's one page of zeros.
at::Tensor zeros_without_memory(DType dtype, at::IntArrayRef sizes) {
    const auto bytes = static_cast<size_t>(c10::multiply_integers(sizes) *
                                           static_cast<int64_t>(dtype_bytes(dtype)));
    void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED)
        fail(ExitCode::kSetup, "no address space for a tensor of {} bytes: {}", bytes,
             errno_text(errno));
    const auto unmap = [bytes](void* begin) { ::munmap(begin, bytes); };
    return tensor_of(c10::InefficientStdFunctionContext::makeDataPtr(address, unmap, at::kCPU),
                     bytes, dtype, sizes);
}

}  // namespace

LoadedArchive load_huggingface(const std::string& path, bool shapes_do) {
    const storage::ModelFolder folder = storage::open_model_folder(path);
    if (shapes_do && folder.weights.empty()) {
        const auto zeros = [&](const std::string&, at::IntArrayRef sizes) {
            return zeros_without_memory(folder.config.dtype, sizes);
        };
        return {make_transformer(folder.config, zeros), {}, /*has_weights=*/false};
    }
    storage::require_weights(folder);
    FolderWeights weights(folder);
    torch::jit::Module module = make_transformer(
        folder.config,
        [&](const std::string& name, at::IntArrayRef sizes) { return weights.take(name, sizes); });
    weights.require_all_taken();
    return {std::move(module), weights.files(), /*has_weights=*/true};
}

}  // namespace dslaunch::graph

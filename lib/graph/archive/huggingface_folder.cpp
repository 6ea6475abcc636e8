#include <ATen/ops/empty.h>
#include <c10/core/StorageImpl.h>
#include <fmt/core.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "graph/archive/kept_layers.h"
#include "graph/archive/mapped_archive.h"
#include "graph/archive/mapped_records.h"
#include "graph/archive/scalar_types.h"
#include "graph/models/transformer.h"
#include "storage/huggingface/folder_weights.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::graph {

namespace {

at::Tensor tensor_of(at::DataPtr data, size_t bytes, DType dtype, at::IntArrayRef sizes) {
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), nullptr,
                         /*resizable=*/false);
    at::Tensor tensor = at::empty({0}, at::TensorOptions(scalar_type_of(dtype)));
    std::vector<int64_t> strides(sizes.size(), 1);
    for (size_t i = sizes.size(); i > 1; --i) strides[i - 2] = strides[i - 1] * sizes[i - 1];
    tensor.set_(storage, 0, sizes, strides);
    return tensor;
}

// Returns zeros that take no memory until they are written: all unwritten pages are the system's
// zero page.
at::Tensor zeros_without_memory(DType dtype, at::IntArrayRef sizes) {
    const auto bytes = static_cast<size_t>(c10::multiply_integers(sizes) *
                                           static_cast<int64_t>(dtype_bytes(dtype)));
    void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED)
        fail(ExitCode::kSetup, "cannot reserve address space for a tensor of {} bytes: {}", bytes,
             errno_text(errno));
    const auto unmap = [bytes](void* begin) { ::munmap(begin, bytes); };
    return tensor_of(c10::InefficientStdFunctionContext::makeDataPtr(address, unmap, at::kCPU),
                     bytes, dtype, sizes);
}

}  // namespace

// Returns a tensor in the mapping, or a copy if its elements are not aligned.
at::Tensor tensor_in(const storage::FolderWeight& weight, at::IntArrayRef sizes) {
    const std::span<const std::byte> bytes = weight.entry.bytes;
    if (weight.made) {
        const auto keep = [made = weight.made](void*) {};
        at::DataPtr data = c10::InefficientStdFunctionContext::makeDataPtr(
            const_cast<std::byte*>(bytes.data()), keep, at::kCPU);
        return tensor_of(std::move(data), bytes.size(), weight.entry.dtype, sizes);
    }
    const auto address = reinterpret_cast<uintptr_t>(bytes.data());
    if (address % static_cast<uintptr_t>(dtype_bytes(weight.entry.dtype)) != 0)
        return tensor_of(copied_data(bytes), bytes.size(), weight.entry.dtype, sizes);
    const auto give_back = [file = weight.file, bytes](void*) { file->discard(bytes); };
    at::DataPtr lent = c10::InefficientStdFunctionContext::makeDataPtr(
        const_cast<std::byte*>(bytes.data()), give_back, at::kCPU);
    return tensor_of(std::move(lent), bytes.size(), weight.entry.dtype, sizes);
}

LoadedArchive load_huggingface(const std::string& path, bool shapes_do,
                               const std::vector<int64_t>& layers) {
    const storage::ModelFolder folder = storage::open_model_folder(path);
    std::optional<KeptLayers> kept;
    if (!layers.empty()) kept.emplace(folder, layers);
    const storage::TransformerConfig config = kept ? kept->config() : folder.config;
    if (shapes_do && folder.weights.empty()) {
        const auto zeros = [&](const std::string&, at::IntArrayRef sizes) {
            return zeros_without_memory(folder.config.dtype, sizes);
        };
        return {make_transformer(config, zeros), {}, /*has_weights=*/false};
    }
    storage::require_weights(folder);
    storage::FolderWeights weights(folder, storage::MapMode::kCopyOnWrite);
    if (kept) weights.leave([&](const std::string& name) { return kept->is_left(name); });
    Module module = make_transformer(config, [&](const std::string& name, at::IntArrayRef sizes) {
        const std::string stored = kept ? kept->name_in_folder(name) : name;
        return tensor_in(weights.take(stored, {sizes.data(), sizes.size()}), sizes);
    });
    weights.require_all_taken();
    return {std::move(module), weights.files(), /*has_weights=*/true};
}

}  // namespace dslaunch::graph

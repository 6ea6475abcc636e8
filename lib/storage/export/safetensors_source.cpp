#include "storage/export/safetensors_source.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"

namespace dslaunch::storage {
namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 20;
constexpr const char* kIndexName = "model.safetensors.index.json";

}  // namespace

SafetensorsSource::SafetensorsSource(std::string path, const std::vector<std::string>& files)
    : path_(std::move(path)) {
    std::set<std::string> names;
    for (const std::string& name : files) {
        const SafetensorsFile& file = *files_.emplace_back(std::make_unique<SafetensorsFile>(name));
        for (const SafetensorsEntry& entry : file.entries()) {
            if (!names.insert(entry.name).second)
                fail(ExitCode::kInput, "{}: tensor `{}` is in another file of {} too", name,
                     printable(entry.name), path_);
            CheckpointTensor tensor;
            tensor.name = entry.name;
            tensor.dtype = entry.dtype;
            tensor.shape = entry.shape;
            tensor.kind = TensorKind::kFrozen;  // weights alone
            tensors_.push_back(std::move(tensor));
            places_.push_back({&file, &entry});
        }
    }
}

void SafetensorsSource::for_each(int tensor, int state, const Range& elements,
                                 const Use& use) const {
    DSL_CHECK(state == kWeights, "a state is asked of a .safetensors file");
    const Place& place = places_.at(static_cast<size_t>(tensor));
    const int64_t bytes = dtype_bytes(place.entry->dtype);
    const int64_t chunk_numel = kChunkBytes / bytes;
    for (int64_t begin = elements.begin; begin < elements.end(); begin += chunk_numel) {
        const Range part{begin, std::min(chunk_numel, elements.end() - begin)};
        const auto memory = place.entry->bytes.subspan(static_cast<size_t>(part.begin * bytes),
                                                       static_cast<size_t>(part.numel * bytes));
        use(part, memory);
        place.file->discard(memory);
    }
}

std::vector<std::string> safetensors_files_of(const std::string& folder) {
    const std::string index = fmt::format("{}/{}", folder, kIndexName);
    const std::string single = fmt::format("{}/model.safetensors", folder);
    std::error_code ignored;
    if (!std::filesystem::exists(index, ignored)) {
        if (std::filesystem::exists(single, ignored)) return {single};
        return {};
    }
    std::ifstream in(index);
    const auto json = nlohmann::json::parse(in, nullptr, false);
    const auto map = json.is_object() ? json.find("weight_map") : json.end();
    if (json.is_discarded() || map == json.end() || !map->is_object())
        fail(ExitCode::kInput, "{}: is no JSON object with a weight_map", index);
    std::set<std::string> files;
    for (const auto& [tensor, file] : map->items()) {
        const std::string name = file.is_string() ? file.get<std::string>() : "";
        if (name.empty() || name.find('/') != std::string::npos)
            fail(ExitCode::kInput, "{}: `{}` is in no file of that folder", index,
                 printable(tensor));
        files.insert(fmt::format("{}/{}", folder, name));
    }
    return {files.begin(), files.end()};
}

}  // namespace dslaunch::storage

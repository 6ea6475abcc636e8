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

}  // namespace dslaunch::storage

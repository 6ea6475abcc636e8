// The part of WholeReference that loads the model.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/api/module.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "graph/archive/mapped_archive.h"
#include "graph/archive/program_values.h"
#include "job/verify/whole_reference.h"
#include "storage/files/file_kind.h"
#include "storage/files/mapped_file.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::job {

namespace {

using Json = nlohmann::json;
using Tensors = std::map<std::string, at::Tensor>;

std::vector<int64_t> numbers(const Json& list) {
    std::vector<int64_t> all;
    for (const Json& one : list) all.push_back(one.at("as_int").get<int64_t>());
    return all;
}

// Adds the tensors of FOLDER (such as "data/weights/") to TENSORS. The table of the tensors is the
// only record in the folder whose name ends in TABLE.
void read_folder(caffe2::serialize::PyTorchStreamReader& reader, const std::string& folder,
                 std::string_view table, Tensors& tensors) {
    for (const std::string& record : reader.getAllRecords()) {
        if (!record.starts_with(folder) || !record.ends_with(table)) continue;
        const auto [text, bytes] = reader.getRecord(record);
        const auto* const begin = static_cast<const char*>(text.get());
        const Json json = Json::parse(begin, begin + bytes);
        std::map<std::string, c10::Storage> storages;
        for (const auto& [name, entry] : json.at("config").items()) {
            const Json& meta = entry.at("tensor_meta");
            const std::string file = entry.at("path_name").get<std::string>();
            const std::vector<int64_t> sizes = numbers(meta.at("sizes"));
            if (storages.count(file) == 0 && reader.hasRecord(folder + file)) {
                auto [data, length] = reader.getRecord(folder + file);
                storages.emplace(file, c10::Storage(c10::Storage::use_byte_size_t(), length,
                                                    std::move(data), nullptr, false));
            }
            const auto found = storages.find(file);
            if (found == storages.end()) continue;  // an empty tensor may have no record
            at::Tensor tensor = at::empty(
                {0}, at::TensorOptions(graph::scalar_type_of_code(meta.at("dtype").get<int>())));
            tensor.set_(found->second, numbers(Json::array({meta.at("storage_offset")})).front(),
                        sizes, numbers(meta.at("strides")));
            tensors.emplace(name, tensor);
        }
    }
}

void take_own_weights(const std::string& path, torch::jit::Module& module) {
    Tensors tensors;
    caffe2::serialize::PyTorchStreamReader reader(path);
    read_folder(reader, "data/weights/", "_weights_config.json", tensors);
    read_folder(reader, "data/constants/", "_constants_config.json", tensors);
    const at::NoGradGuard no_grad;
    const auto take = [&](const std::string& name, at::Tensor tensor) {
        const auto found = tensors.find(name);
        if (found != tensors.end()) tensor.set_data(found->second);
    };
    for (const auto& item : module.named_parameters(true)) take(item.name, item.value);
    for (const auto& item : module.named_buffers(true)) take(item.name, item.value);
}

}  // namespace

graph::Model load_as_torch(const std::string& path, const std::vector<int64_t>& layers) {
    if (storage::model_folder_of(path).has_value())
        return graph::Model::adopt_untied(graph::load_huggingface(path, false, layers).module);
    if (storage::file_kind(storage::MappedFile(path).bytes()) !=
        storage::FileKind::kExportedProgram)
        return graph::Model::adopt_untied(graph::load_by_libtorch(path));
    torch::jit::Module module = graph::load_exported(path).module;
    take_own_weights(path, module);
    return graph::Model::adopt_untied(std::move(module));
}

}  // namespace dslaunch::job

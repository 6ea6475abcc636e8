#include "graph/adapter/adapter_folder.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/matmul.h>
#include <c10/core/ScalarType.h>

#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/text_bytes.h"
#include "graph/archive/scalar_types.h"
#include "storage/files/atomic_file.h"
#include "storage/files/mapped_file.h"
#include "storage/files/safetensors.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::graph {

AdapterFolder load_adapter(const std::string& folder) {
    const std::string config_path = fmt::format("{}/{}", folder, storage::kAdapterConfig);
    const std::string weights_path = fmt::format("{}/{}", folder, storage::kAdapterWeights);
    AdapterFolder adapter;
    const storage::MappedFile config(config_path);
    adapter.config = storage::parse_adapter_config(config_path, text_in(config.bytes()));
    const storage::SafetensorsFile weights(weights_path);
    storage::check_adapter_tensors(weights_path, adapter.config, weights.entries());
    for (const storage::SafetensorsEntry& entry : weights.entries()) {
        const at::Tensor stored =
            at::from_blob(const_cast<std::byte*>(entry.bytes.data()), entry.shape,
                          at::TensorOptions(scalar_type_of(entry.dtype)));
        adapter.tensors.emplace(storage::name_in_model(entry.name),
                                stored.to(at::kFloat, false, /*copy=*/true));
    }
    return adapter;
}

int merge_adapter(Model& model, const AdapterFolder& adapter, const std::string& folder) {
    const at::NoGradGuard no_grad;
    struct Weight {
        at::Tensor tensor;
        bool is_tied = false;
    };
    std::map<std::string, Weight> weights;
    for (const ModelParameter& parameter : model.parameters()) {
        const Weight weight{parameter.tensor.detach(), !parameter.aliases.empty()};
        weights[parameter.name] = weight;
        for (const std::string& alias : parameter.aliases) weights[alias] = weight;
    }
    const auto refuse = [&](const std::string& name, const char* why) {
        fail(ExitCode::kInput, "{}: `{}` {}", printable(folder), printable(name), why);
    };
    int layers = 0;
    for (const auto& [name, tensor] : adapter.tensors) {
        if (name.ends_with(kAdapterB)) continue;
        const bool is_a = name.ends_with(kAdapterA);
        const std::string layer =
            is_a ? name.substr(0, name.size() - kAdapterA.size()) : std::string();
        const std::string weight_name = is_a ? layer + ".weight" : name;
        auto weight = weights.find(weight_name);
        if (weight == weights.end() && is_a) weight = weights.find(layer);
        if (weight == weights.end()) refuse(name, "belongs to no layer of the model");
        at::Tensor& values = weight->second.tensor;
        const auto put = [&](const at::Tensor& made) {
            values.copy_(made);
            if (!at::isfinite(values).all().item<bool>())
                refuse(name, "makes the model's weight NaN or infinite");
        };
        if (!is_a) {
            if (values.sizes() != tensor.sizes())
                refuse(name, "has another shape than the model's parameter");
            put(tensor);
            continue;
        }
        if (weight->second.is_tied)
            refuse(name, "changes a weight that two modules share: merged, it would change both");
        const at::Tensor& b = adapter.tensors.at(layer + std::string(kAdapterB));
        at::Tensor change = at::matmul(b, tensor).mul_(adapter.config.scale());
        const bool as_it_is = values.sizes() == change.sizes();
        const bool turned = values.sizes() == change.t().sizes();
        if (!as_it_is && !turned) refuse(name, "has another shape than the layer's weight");
        if (turned && (!as_it_is || adapter.config.transposed)) change = change.t();
        put(values.to(at::kFloat) + change);
        ++layers;
    }
    if (adapter.tensors.empty())
        fail(ExitCode::kInput, "{}: has no tensors: there is nothing to merge", printable(folder));
    return layers;
}

int merge_adapter_folder(Model& model, const std::string& model_path, const std::string& folder) {
    AdapterFolder adapter = load_adapter(folder);
    if (!storage::model_folder_of(model_path)) return merge_adapter(model, adapter, folder);
    const storage::TransformerConfig config = storage::open_model_folder(model_path).config;
    // A square matrix does not show which way it lies, and the model has the last word.
    adapter.config.transposed = config.transposed;
    const std::string table = fmt::format("{}.{}{}", config.names.at("decoder"),
                                          config.names.at("embed"), storage::kAdapterA);
    if (config.tied && adapter.tensors.contains(table))
        fail(ExitCode::kInput,
             "{}: `{}` changes the output layer, which shares its weight with the table of tokens: "
             "merged, it would change both; use the adapter beside the model "
             "(`dslaunch generate --adapter`)",
             printable(folder), printable(table));
    return merge_adapter(model, adapter, folder);
}

void write_adapter(const AdapterFolder& adapter, const std::string& folder) {
    std::vector<storage::SafetensorsEntry> entries;
    std::vector<at::Tensor> values;
    for (const auto& [name, tensor] : adapter.tensors) {
        values.push_back(tensor.contiguous());
        storage::SafetensorsEntry entry;
        entry.name = storage::name_in_adapter(name);
        entry.dtype = DType::kF32;
        entry.shape = tensor.sizes().vec();
        entries.push_back(std::move(entry));
    }
    storage::make_folder(folder);
    storage::SafetensorsWriter writer(fmt::format("{}/{}", folder, storage::kAdapterWeights),
                                      entries, {{"format", "pt"}});
    for (size_t i = 0; i < entries.size(); ++i)
        writer.write(i, {static_cast<const std::byte*>(values[i].const_data_ptr()),
                         static_cast<size_t>(values[i].nbytes())});
    writer.commit();
    const std::string config = storage::adapter_config_json(adapter.config);
    storage::AtomicFile file(fmt::format("{}/{}", folder, storage::kAdapterConfig),
                             Bytes{std::ssize(config)});
    file.write(config);
    file.commit();
}

}  // namespace dslaunch::graph

#include "graph/adapter/adapter_folder.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
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

namespace dslaunch::graph {

AdapterFolder load_adapter(const std::string& folder) {
    const std::string config_path = fmt::format("{}/{}", folder, storage::kAdapterConfig);
    const std::string weights_path = fmt::format("{}/{}", folder, storage::kAdapterWeights);
    AdapterFolder adapter;
    const storage::MappedFile config(config_path);
    adapter.config = storage::parse_adapter_config(config_path, text_in(config.bytes()));
    const storage::SafetensorsFile weights(weights_path);
    for (const storage::SafetensorsEntry& entry : weights.entries()) {
        const std::string name = storage::name_in_model(entry.name);
        if (name.empty())
            fail(ExitCode::kInput, "{}: tensor `{}` belongs to no adapter", printable(weights_path),
                 printable(entry.name));
        const at::Tensor stored =
            at::from_blob(const_cast<std::byte*>(entry.bytes.data()), entry.shape,
                          at::TensorOptions(scalar_type_of(entry.dtype)));
        if (!stored.is_floating_point())
            fail(ExitCode::kInput, "{}: tensor `{}` is of no floating-point type",
                 printable(weights_path), printable(entry.name));
        adapter.tensors.emplace(name, stored.to(at::kFloat, false, /*copy=*/true));
    }
    return adapter;
}

int merge_adapter(Model& model, const AdapterFolder& adapter, const std::string& folder) {
    const at::NoGradGuard no_grad;
    std::map<std::string, at::Tensor> weights;
    for (const ModelParameter& parameter : model.parameters()) {
        weights[parameter.name] = parameter.tensor.detach();
        for (const std::string& alias : parameter.aliases)
            weights[alias] = parameter.tensor.detach();
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
        if (!is_a) {
            if (weight->second.sizes() != tensor.sizes())
                refuse(name, "has another shape than the model's parameter");
            weight->second.copy_(tensor);
            continue;
        }
        const auto b = adapter.tensors.find(layer + std::string(kAdapterB));
        if (b == adapter.tensors.end()) refuse(name, "has no lora_B beside it");
        if (tensor.dim() != 2 || b->second.dim() != 2 || b->second.size(1) != tensor.size(0))
            refuse(name, "does not fit its lora_B");
        at::Tensor change = at::matmul(b->second, tensor).mul_(adapter.config.scale());
        const bool as_it_is = weight->second.sizes() == change.sizes();
        const bool turned = weight->second.sizes() == change.t().sizes();
        if (!as_it_is && !turned) refuse(name, "has another shape than the layer's weight");
        if (turned && (!as_it_is || adapter.config.transposed)) change = change.t();
        weight->second.copy_(weight->second.to(at::kFloat) + change);
        ++layers;
    }
    return layers;
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

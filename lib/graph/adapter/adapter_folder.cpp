#include "graph/adapter/adapter_folder.h"

#include <ATen/ops/tensor.h>
#include <c10/core/ScalarType.h>

#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "storage/adapter/adapter_changes.h"
#include "storage/files/atomic_file.h"
#include "storage/files/safetensors.h"

namespace dslaunch::graph {

AdapterFolder load_adapter(const std::string& folder) {
    const storage::AdapterChanges changes(folder, nullptr);
    AdapterFolder adapter;
    adapter.config = changes.config();
    if (!adapter.config.is_plain())
        fail(
            ExitCode::kInput,
            "{}/{}: has ranks or scales by layer, DoRA, PiSSA, OLoRA, target_parameters or rows of "
            "tables, and training goes on with plain LoRA alone: merge the adapter first "
            "(`dslaunch model merge`), and train a new one on the merged model",
            printable(folder), storage::kAdapterConfig);
    const auto put = [&](const std::string& name, const std::vector<float>& numbers,
                         at::IntArrayRef sizes) {
        adapter.tensors[name] = at::tensor(numbers, at::kFloat).view(sizes);
    };
    for (const auto& [layer, change] : changes.all()) {
        if (change.whole)
            put(storage::read_adapter_name(change.whole->name).path,
                storage::fp32_numbers(*change.whole), change.whole->shape);
        if (change.added)
            changes.refuse(change.added->name, "is a bias that training does not have");
        if (!change.pair) continue;
        const storage::LowRankPair& pair = *change.pair;
        if (pair.of_table)
            changes.refuse(pair.name, "is of a table, and training adapts linear layers alone");
        put(layer + std::string(kAdapterA), pair.read_a(), {pair.r, pair.in()});
        put(layer + std::string(kAdapterB), pair.read_b(), {pair.out(), pair.r});
    }
    return adapter;
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

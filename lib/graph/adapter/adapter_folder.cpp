#include "graph/adapter/adapter_folder.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "storage/adapter/adapter_changes.h"
#include "storage/files/atomic_file.h"
#include "storage/files/safetensors.h"
#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::graph {

AdapterFolder load_adapter(const std::string& folder) {
    const storage::AdapterChanges changes(folder, nullptr);
    AdapterFolder adapter;
    adapter.config = changes.config();
    if (!adapter.config.is_plain())
        fail(ExitCode::kInput,
             "{}/{}: this adapter uses ranks or scales per layer, DoRA, PiSSA, OLoRA, "
             "target_parameters or trained table rows, but training can continue only plain LoRA; "
             "merge the adapter first (`dslaunch model merge`), and train a new one on the merged "
             "model",
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
            changes.refuse(change.added->name, "is a trained bias, which training cannot continue");
        if (!change.pair) continue;
        const storage::LowRankPair& pair = *change.pair;
        if (pair.is_of_table)
            changes.refuse(pair.name,
                           "belongs to an embedding table, but training adapts only linear layers");
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
    storage::write_atomically(fmt::format("{}/{}", folder, storage::kAdapterConfig),
                              storage::adapter_config_json(adapter.config));
}

namespace {

using storage::TransformerConfig;

class PeftForm {
  public:
    PeftForm(AdapterFolder& adapter, const TransformerConfig& model)
        : adapter_(adapter), model_(model) {}

    void make() {
        // transformers 5 names GPT-NeoX's `embed_out` differently.
        if (model_.names.at("head") == "embed_out") rename_module("embed_out", "lm_head");
        if (model_.has_experts()) join_layers();
        // In a model that also sees images, the text model has another name.
        if (!model_.outer.empty())
            rename_module(model_.names.at("decoder"), "model.language_model");
    }

  private:
    void join_layers() {
        const std::string layers =
            fmt::format("{}.{}.", model_.names.at("decoder"), model_.names.at("layers"));
        for (size_t i = 0; i < model_.layers.size(); ++i) {
            const std::string mlp = fmt::format("{}{}.{}.", layers, i, model_.names.at("mlp"));
            const std::string now = fmt::format("{}{}.mlp.", layers, i);
            rename_whole(mlp + model_.names.at("router"), now + model_.names.at("router"));
            join_whole_experts(mlp + model_.names.at("experts"), now + model_.names.at("experts"));
            layers_.push_back({mlp, now, pairs_of(mlp + model_.names.at("experts") + ".")});
        }
        if (is_converted()) return;
        for (const Layer& layer : layers_) join_experts(layer);
    }

    struct Pair {
        at::Tensor a, b;
    };
    using Pairs = std::map<std::string, std::vector<Pair>>;  // maps a matrix to its pairs, one for
                                                             // each expert
    struct Layer {
        std::string mlp, now;  // such as "model.layers.0.block_sparse_moe.", and its new name
        Pairs pairs;
    };

    // Renames the module FROM, with all that it contains, to TO.
    void rename_module(const std::string& from, const std::string& to) {
        const auto renamed = [&](const std::string& name) {
            const bool is_of_it = name == from || name.starts_with(from + ".");
            return is_of_it ? to + name.substr(from.size()) : name;
        };
        std::map<std::string, at::Tensor> tensors;
        for (auto& [name, tensor] : adapter_.tensors) tensors[renamed(name)] = tensor;
        adapter_.tensors = std::move(tensors);
        storage::AdapterConfig& config = adapter_.config;
        for (auto* names : {&config.targets, &config.modules_to_save, &config.target_parameters})
            for (std::string& name : *names) name = renamed(name);
    }

    // Renames a module that was trained whole: PEFT itself renames only low-rank pairs.
    void rename_whole(const std::string& from, const std::string& to) {
        if (adapter_.tensors.contains(from + ".weight")) rename_module(from, to);
    }

    // Joins the experts of a layer into two parameters, if all of them were trained whole.
    void join_whole_experts(const std::string& from, const std::string& to) {
        std::map<std::string, std::vector<at::Tensor>> all;
        std::vector<std::string> modules;
        for (int64_t i = 0; i < model_.experts; ++i)
            for (const char* kind : {"gate", "up", "down"}) {
                modules.push_back(fmt::format("{}.{}.{}", from, i, model_.names.at(kind)));
                const auto found = adapter_.tensors.find(modules.back() + ".weight");
                if (found == adapter_.tensors.end()) return;
                all[kind].push_back(found->second);
            }
        for (const std::string& module : modules) {
            adapter_.tensors.erase(module + ".weight");
            std::erase(adapter_.config.modules_to_save, module);
        }
        adapter_.config.modules_to_save.push_back(to);
        adapter_.tensors[to + ".gate_up_proj"] =
            at::cat({at::stack(all["gate"]), at::stack(all["up"])}, 1);
        adapter_.tensors[to + ".down_proj"] = at::stack(all["down"]);
    }

    Pairs pairs_of(const std::string& experts) const {
        Pairs pairs;
        for (const char* kind : {"gate", "up", "down"}) {
            std::vector<Pair> all(static_cast<size_t>(model_.experts));
            bool some = false;
            for (int64_t i = 0; i < model_.experts; ++i) {
                const std::string layer = fmt::format("{}{}.{}", experts, i, model_.names.at(kind));
                const auto a = adapter_.tensors.find(layer + std::string(kAdapterA));
                const auto b = adapter_.tensors.find(layer + std::string(kAdapterB));
                if (a == adapter_.tensors.end() || b == adapter_.tensors.end()) continue;
                all[static_cast<size_t>(i)] = {a->second, b->second};
                some = true;
            }
            if (some) pairs[kind] = std::move(all);
        }
        return pairs;
    }

    // Returns true if PEFT 0.21 joins the experts' pairs when it loads the adapter. PEFT joins them
    // if all experts of a layer have pairs, and if gate and up, which transformers joins, either
    // both have pairs or both have none. PEFT cannot join Qwen2Moe's pairs.
    [[nodiscard]] bool is_converted() const {
        if (model_.architecture == "Qwen2MoeForCausalLM") return false;
        return std::ranges::all_of(layers_, [](const Layer& layer) {
            const bool are_all = std::ranges::all_of(layer.pairs, [](const auto& named) {
                return std::ranges::all_of(named.second,
                                           [](const Pair& pair) { return pair.a.defined(); });
            });
            return are_all && layer.pairs.contains("gate") == layer.pairs.contains("up");
        });
    }

    void join_experts(const Layer& layer) {
        storage::AdapterConfig& config = adapter_.config;
        const std::string router = layer.mlp + model_.names.at("router");
        if (adapter_.tensors.contains(router + std::string(kAdapterA))) {
            const std::string now = layer.now + model_.names.at("router");
            rename_module(router, now);
            std::erase(config.targets, now);
            config.target_parameters.push_back(now + ".weight");
        }
        for (auto [kind, pairs] : layer.pairs)
            for (int64_t i = 0; i < model_.experts; ++i) {
                const std::string one = fmt::format(
                    "{}{}.{}.{}", layer.mlp, model_.names.at("experts"), i, model_.names.at(kind));
                adapter_.tensors.erase(one + std::string(kAdapterA));
                adapter_.tensors.erase(one + std::string(kAdapterB));
                std::erase(config.targets, one);
            }
        const std::string experts = layer.now + model_.names.at("experts");
        const bool has_down = layer.pairs.contains("down");
        if (layer.pairs.contains("gate") || layer.pairs.contains("up")) {
            // PEFT wraps the module `experts` once for each of its parameters that has a pair. If
            // both gate_up_proj and down_proj have pairs, the pair of gate_up_proj belongs to the
            // inner wrapper, which is named base_layer.
            put(has_down ? experts + ".base_layer" : experts,
                {of(layer, "gate", model_.expert_width), of(layer, "up", model_.expert_width)});
            config.target_parameters.push_back(experts + ".gate_up_proj");
            config.rank_pattern = {{"experts.gate_up_proj", 2.0 * static_cast<double>(config.r)}};
            config.alpha_pattern = {
                {"experts.gate_up_proj", config.alpha * (config.is_rslora ? std::sqrt(2.0) : 2.0)}};
        }
        if (has_down) {
            put(experts, {of(layer, "down", model_.width)});
            config.target_parameters.push_back(experts + ".down_proj");
        }
        // PEFT has no dropout for adapters of single parameters. It refuses to load such an adapter
        // if the config sets a dropout.
        if (!config.target_parameters.empty()) config.dropout = 0;
    }

    // Returns the pairs of all experts for one matrix; an expert without a pair gets zeros. OUT:
    // the number of rows of B.
    [[nodiscard]] std::vector<Pair> of(const Layer& layer, const char* kind, int64_t out) const {
        const int64_t in = kind == std::string("down") ? model_.expert_width : model_.width;
        const int64_t r = adapter_.config.r;
        const auto found = layer.pairs.find(kind);
        std::vector<Pair> pairs(static_cast<size_t>(model_.experts));
        if (found != layer.pairs.end()) pairs = found->second;
        for (Pair& pair : pairs)
            if (!pair.a.defined())
                pair = {at::zeros({r, in}, at::kFloat), at::zeros({out, r}, at::kFloat)};
        return pairs;
    }

    // Writes one pair for the joined MATRICES of all experts. A: the rows of all MATRICES of the
    // first expert, then the rows of the next expert, and so on. B: each matrix has its own rows
    // and columns; a column of the first expert is followed by the same column of the other
    // experts.
    void put(const std::string& module, const std::vector<std::vector<Pair>>& matrices) {
        std::vector<at::Tensor> rows, columns;
        for (size_t i = 0; i < matrices.front().size(); ++i) {
            std::vector<at::Tensor> blocks;
            for (size_t m = 0; m < matrices.size(); ++m) {
                rows.push_back(matrices[m][i].a);
                std::vector<at::Tensor> line;
                for (size_t other = 0; other < matrices.size(); ++other)
                    line.push_back(other == m ? matrices[m][i].b
                                              : at::zeros_like(matrices[m][i].b));
                blocks.push_back(at::cat(line, 1));
            }
            columns.push_back(at::cat(blocks, 0));
        }
        adapter_.tensors[module + std::string(kAdapterA)] = at::cat(rows, 0);
        adapter_.tensors[module + std::string(kAdapterB)] = at::stack(columns, 2).flatten(1);
    }

    AdapterFolder& adapter_;
    const TransformerConfig& model_;
    std::vector<Layer> layers_;
};

}  // namespace

void to_peft_form(AdapterFolder& adapter, const storage::TransformerConfig& model) {
    PeftForm(adapter, model).make();
}

}  // namespace dslaunch::graph

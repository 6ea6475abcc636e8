#include "graph/adapter/adapters.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/kinds/shape_text.h"
#include "base/text.h"
#include "base/text/fnv1a.h"
#include "graph/adapter/adapter_folder.h"
#include "graph/adapter/linear_layers.h"
#include "graph/memory/memory_order.h"
#include "graph/nodes/graph_nodes.h"
#include "graph/packed/packed_weight.h"
#include "storage/huggingface/folder_weights.h"

namespace dslaunch::graph {

namespace {

// Returns true if PATTERN matches the whole NAME, or is equal to the end of NAME after a dot.
bool is_meant(std::string_view pattern, std::string_view name) {
    return fits_pattern(pattern, name) || name.ends_with("." + std::string(pattern));
}

bool is_meant_by_any(const std::vector<std::string>& patterns, std::string_view name) {
    return std::ranges::any_of(patterns,
                               [&](const std::string& one) { return is_meant(one, name); });
}

void require_meant(const std::vector<std::string>& patterns, const std::vector<std::string>& names,
                   const char* key, const char* what) {
    for (const std::string& pattern : patterns) {
        if (std::ranges::any_of(names,
                                [&](const std::string& name) { return is_meant(pattern, name); }))
            continue;
        std::vector<std::string> ends;
        for (const std::string& name : names) ends.push_back(name.substr(name.rfind('.') + 1));
        std::optional<std::string> guess = nearest(pattern, names);
        // Most patterns, such as `q_projj` or `*.q_projj`, name only the last part of a name, so
        // this compares last parts.
        if (!guess) guess = nearest(pattern.substr(pattern.rfind('.') + 1), ends);
        std::string hint;
        std::ranges::sort(ends);
        ends.erase(std::ranges::unique(ends).begin(), ends.end());
        constexpr size_t kListedMax = 12;
        if (guess) hint = fmt::format("; did you mean `{}`?", printable(*guess));
        if (!ends.empty() && ends.size() <= kListedMax)
            hint += fmt::format("{} are {}", guess ? " All" : "; all", fmt::join(ends, ", "));
        else if (!guess && !names.empty())
            hint = fmt::format("; the first one is `{}`", printable(names.front()));
        fail(ExitCode::kConfig, "{}: `{}` matches no {} of the model{}", key, printable(pattern),
             what, hint);
    }
}

// Returns the modules that contain parameter INDEX under any of its names, and the modules that
// contain these modules.
std::vector<std::string> modules_with(const Model& model, int index) {
    const ModelParameter& parameter = model.parameters()[index];
    std::vector<std::string> modules = {module_of(parameter.name)};
    for (const std::string& alias : parameter.aliases) modules.push_back(module_of(alias));
    if (const std::string head = tied_head_of(model, index); !head.empty()) modules.push_back(head);
    for (size_t i = 0; i < modules.size(); ++i)
        if (std::string outer = module_of(modules[i]); !outer.empty()) modules.push_back(outer);
    return modules;
}

// Returns true if parameter INDEX is trained itself, without an adapter.
bool is_saved(const Model& model, int index, const config::LoraConfig& lora) {
    return std::ranges::any_of(modules_with(model, index), [&](const std::string& module) {
        return is_meant_by_any(lora.modules_to_save, module);
    });
}

std::vector<LinearLayer> chosen_layers(const Model& model, const LoweredGraph& lowered,
                                       const config::LoraConfig& lora) {
    std::vector<LinearLayer> layers = find_linear_layers(model, lowered);
    if (layers.empty())
        fail(ExitCode::kInput,
             "dslaunch.lora: forward has no linear layer (no product with a 2-D parameter), so "
             "there is nothing to adapt");
    if (lora.targets.empty() || lora.targets == std::vector<std::string>{"all-linear"}) {
        if (layers.size() > 1) layers.pop_back();
    } else {
        std::vector<std::string> names;
        for (const LinearLayer& layer : layers) names.push_back(layer.name);
        require_meant(lora.targets, names, "dslaunch.lora.targets", "linear layer");
        std::erase_if(layers, [&](const LinearLayer& layer) {
            return !is_meant_by_any(lora.targets, layer.name);
        });
    }
    // A layer that is trained itself gets no adapter: PEFT, which loads the result, has the same
    // rule.
    std::erase_if(layers,
                  [&](const LinearLayer& layer) { return is_saved(model, layer.parameter, lora); });
    if (layers.empty())
        fail(ExitCode::kConfig,
             "dslaunch.lora.modules_to_save: it contains every layer that dslaunch.lora.targets "
             "name, so no layer is left for an adapter; name other targets, or train without "
             "dslaunch.lora");
    return layers;
}

void freeze(const Model& model, const config::LoraConfig& lora) {
    std::vector<std::string> modules;
    for (int i = 0; i < std::ssize(model.parameters()); ++i) {
        if (is_of_adapter(model.parameters()[i].name)) continue;
        const std::vector<std::string> with = modules_with(model, i);
        modules.insert(modules.end(), with.begin(), with.end());
        if (is_saved(model, i, lora)) continue;
        at::Tensor tensor = model.parameters()[i].tensor;
        tensor.set_requires_grad(false);
    }
    require_meant(lora.modules_to_save, modules, "dslaunch.lora.modules_to_save", "module");
}

class Adder {
  public:
    Adder(Model& model, LoweredGraph& lowered, const AdapterOptions& options)
        : model_(model), lowered_(lowered), options_(options) {
        for (int i = 0; i < std::ssize(model.parameters()); ++i) {
            index_of_[model.parameters()[i].name] = i;
            for (const std::string& alias : model.parameters()[i].aliases) index_of_[alias] = i;
            if (const std::string head = tied_head_of(model, i); !head.empty())
                index_of_[head + ".weight"] = i;
        }
        if (!options.lora.init.empty() && !has_adapters()) init_.emplace(load());
    }

    void add(const LinearLayer& layer) {
        const ModelParameter& parameter = model_.parameters()[layer.parameter];
        const at::Tensor& weight = parameter.packed ? parameter.packed->source() : parameter.tensor;
        const int64_t in = weight.size(layer.is_transposed ? 0 : 1);
        const int64_t out = weight.size(layer.is_transposed ? 1 : 0);
        Value* const a = input_of(layer.name + std::string(kAdapterA), {options_.lora.r, in});
        Value* const b = input_of(layer.name + std::string(kAdapterB), {out, options_.lora.r});
        for (const LinearUse& use : layer.uses) add_beside(use, a, b);
    }

    // Throws if the folder has tensors of layers that were not chosen, because the result would not
    // contain these tensors.
    void require_all_taken() const {
        if (!init_) return;
        for (const auto& [name, tensor] : init_->tensors)
            if (taken_.count(name) == 0 && index_of_.count(name) == 0)
                fail(ExitCode::kInput,
                     "{}: `{}` does not belong to any layer that dslaunch.lora.targets name; add "
                     "the layer of this tensor to the targets",
                     printable(options_.lora.init), printable(name));
    }

    // Copies the folder's values of modules_to_save into the model.
    void take_saved_modules() {
        if (!init_) return;
        const at::NoGradGuard no_grad;
        std::set<int> taken;
        for (const auto& [name, tensor] : init_->tensors) {
            const auto found = index_of_.find(name);
            if (found == index_of_.end() || is_of_adapter(name)) continue;
            at::Tensor parameter = model_.parameters()[found->second].tensor;
            if (parameter.sizes() != tensor.sizes()) refuse_sizes(name, parameter.sizes(), tensor);
            if (!taken.insert(found->second).second && !parameter.detach().equal(tensor))
                fail(ExitCode::kInput,
                     "{}: `{}` shares a weight with another tensor in this model, but the adapter "
                     "gives the two different values; merge the adapter first (`dslaunch model "
                     "merge`)",
                     printable(options_.lora.init), printable(name));
            parameter.detach().copy_(tensor);
        }
    }

  private:
    [[nodiscard]] bool has_adapters() const {
        return std::ranges::any_of(model_.parameters(), [](const ModelParameter& parameter) {
            return is_of_adapter(parameter.name);
        });
    }

    [[nodiscard]] AdapterFolder load() const {
        AdapterFolder folder = load_adapter(options_.lora.init);
        const double scale = folder.config.scale();
        if (std::abs(scale - options_.lora.scale()) > 1e-9 * std::abs(scale))
            fail(ExitCode::kConfig,
                 "dslaunch.lora.init: the adapter in {} has the scale {:g}, but dslaunch.lora "
                 "gives the scale {:g}; set r to {}, alpha to {:g} and rslora to {}",
                 printable(options_.lora.init), scale, options_.lora.scale(), folder.config.r,
                 folder.config.alpha, folder.config.is_rslora);
        return folder;
    }

    [[noreturn]] void refuse_sizes(const std::string& name, at::IntArrayRef wanted,
                                   const at::Tensor& there) const {
        const auto text = [](at::IntArrayRef sizes) {
            return shape_text({sizes.data(), sizes.size()});
        };
        fail(ExitCode::kInput, "{}: `{}` has the shape {}, but the model's has {}",
             printable(options_.lora.init), printable(name), text(there.sizes()), text(wanted));
    }

    // Returns the graph's input for the parameter NAME. Adds the parameter to the model if it is
    // missing.
    Value* input_of(const std::string& name, const std::vector<int64_t>& sizes) {
        const auto found = index_of_.find(name);
        const int index = found != index_of_.end()
                              ? found->second
                              : model_.add_parameter(name, initial(name, sizes));
        index_of_[name] = index;
        return add_parameter_input(lowered_, index);
    }

    at::Tensor initial(const std::string& name, const std::vector<int64_t>& sizes) {
        const at::NoGradGuard no_grad;
        taken_.insert(name);
        at::Tensor tensor = at::zeros(sizes, at::kFloat);
        if (init_) {
            const auto found = init_->tensors.find(name);
            if (found == init_->tensors.end())
                fail(ExitCode::kInput, "{}: contains no `{}`, which dslaunch.lora.targets require",
                     printable(options_.lora.init), printable(name));
            if (found->second.sizes() != at::IntArrayRef(sizes))
                refuse_sizes(name, sizes, found->second);
            tensor.copy_(found->second);
        } else if (name.ends_with(kAdapterA)) {
            const double bound = 1 / std::sqrt(static_cast<double>(sizes[1]));
            at::Generator generator =
                at::detail::createCPUGenerator(options_.seed ^ fnv1a(kFnv1aBegin, name));
            tensor.uniform_(-bound, bound, generator);
        }
        return tensor.set_requires_grad(true);
    }

    void add_beside(const LinearUse& use, Value* a, Value* b) const {
        Node& node = *use.node;
        const config::LoraConfig& lora = options_.lora;
        const WithInsertPoint behind(node.next());
        Value* x = node.input(use.input);
        if (options_.trains && lora.dropout > 0)
            x = insert_like(node, aten::dropout, {x, lora.dropout, true});
        const IValue none;
        Value* const narrow = insert_like(node, aten::linear, {x, a, none});
        Value* const wide = insert_like(node, aten::linear, {narrow, b, none});
        Value* const scaled = insert_like(node, aten::mul, {wide, lora.scale()});
        Value* const sum = insert_like(node, aten::add, {node.output(), scaled});
        sum->setType(node.output()->type());
        node.output()->replaceAllUsesAfterNodeWith(sum->node(), sum);
    }

    Model& model_;
    LoweredGraph& lowered_;
    const AdapterOptions& options_;
    std::map<std::string, int> index_of_;
    std::optional<AdapterFolder> init_;
    std::set<std::string> taken_;
};

}  // namespace

void add_adapters(Model& model, LoweredGraph& lowered, const AdapterOptions& options) {
    const std::vector<LinearLayer> layers = chosen_layers(model, lowered, options.lora);
    freeze(model, options.lora);
    Adder adder(model, lowered, options);
    adder.take_saved_modules();
    for (const LinearLayer& layer : layers) adder.add(layer);
    adder.require_all_taken();
}

storage::AdapterConfig describe_adapters(const Model& model, const config::LoraConfig& lora) {
    storage::AdapterConfig config;
    config.r = lora.r;
    config.alpha = lora.alpha;
    config.dropout = lora.dropout;
    config.is_rslora = lora.rslora;
    // Lists modules by their full names, so that PEFT finds exactly these modules.
    for (int i = 0; i < std::ssize(model.parameters()); ++i) {
        const ModelParameter& parameter = model.parameters()[i];
        const std::string module = module_of(parameter.name);
        if (is_of_adapter(parameter.name) || !parameter.tensor.requires_grad() || module.empty())
            continue;
        if (config.modules_to_save.empty() || config.modules_to_save.back() != module)
            config.modules_to_save.push_back(module);
        config.is_tied = config.is_tied || !tied_head_of(model, i).empty();
    }
    std::map<std::string, const ModelParameter*> parameters;
    for (const ModelParameter& parameter : model.parameters())
        parameters[parameter.name] = &parameter;
    for (const auto& [name, parameter] : parameters) {
        if (!name.ends_with(kAdapterA)) continue;
        const std::string layer = name.substr(0, name.size() - kAdapterA.size());
        config.targets.push_back(layer);
        auto weight = parameters.find(layer + ".weight");
        if (weight == parameters.end()) weight = parameters.find(layer);
        if (weight == parameters.end()) continue;
        // For a square weight, the sizes do not show whether it is stored as [in, out]. The flag is
        // for the whole model, so one layer whose weight is not square is enough.
        const auto& packed = weight->second->packed;
        const bool transposed = packed
                                    ? packed->is_transposed()
                                    : weight->second->tensor.size(1) != parameter->tensor.size(1);
        config.is_transposed = config.is_transposed || transposed;
    }
    return config;
}

std::string base_fingerprint(const Model& model) {
    constexpr int64_t kSamples = 16;
    const at::NoGradGuard no_grad;
    uint64_t hash = kFnv1aBegin;
    for (int p = 0; p < std::ssize(model.parameters()); ++p) {
        const ModelParameter& parameter = model.parameters()[p];
        if (parameter.tensor.requires_grad()) continue;
        const at::Tensor weight = parameter.packed ? parameter.packed->source() : parameter.tensor;
        hash = fnv1a(hash, fmt::format("{} {}", parameter.name, fmt::join(weight.sizes(), "x")));
        const at::Tensor elements = in_memory_order(weight.detach());
        const int64_t count = std::min(kSamples, elements.numel());
        for (int64_t i = 0; i < count; ++i) {
            const int64_t at = elements.numel() * i / count;
            const auto value = elements[at].to(at::kDouble).item<double>();
            hash = fnv1a(hash, {reinterpret_cast<const char*>(&value), sizeof value});
        }
        static_cast<void>(model.release_pages(p));
    }
    return fmt::format("{:016x}", hash);
}

}  // namespace dslaunch::graph

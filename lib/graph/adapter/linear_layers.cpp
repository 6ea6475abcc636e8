#include "graph/adapter/linear_layers.h"

#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "graph/adapter/adapter_folder.h"
#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

namespace {

struct FoundUse {
    LinearUse use;
    size_t input = 0;  // index among the graph's parameters
};

bool turns(const Node& node) {
    return is_one_of(node, {"aten::t", "aten::numpy_T", "aten::transpose"});
}

bool passes_on(const Node& node) {
    return is_one_of(node, {"aten::to", "aten::type_as", "aten::contiguous", "aten::detach"});
}

class Finder {
  public:
    Finder(const Model& model, const LoweredGraph& lowered) : model_(model), lowered_(lowered) {
        for (size_t i = 0; i < lowered.parameters.size(); ++i) input_of_[input(i)] = i;
        for_each_node(*lowered.graph->block(), [this](Node& node) {
            if (const std::optional<FoundUse> found = use_of(node)) add(*found);
        });
        // An adapter can be added only if all products read the weight in the same orientation.
        std::erase_if(layers_, [](const LinearLayer& layer) {
            return std::ranges::any_of(layer.uses, [&](const LinearUse& use) {
                return use.is_transposed != layer.is_transposed;
            });
        });
        for (LinearLayer& layer : layers_) {
            layer.is_read_elsewhere = !only_multiplied(*layer.weight, layer);
            if (!layer.is_read_elsewhere) continue;
            const std::string head = tied_head_of(model, layer.parameter);
            if (!head.empty()) layer.name = head;
        }
    }

    [[nodiscard]] std::vector<LinearLayer> take() { return std::move(layers_); }

  private:
    [[nodiscard]] Value* input(size_t i) const {
        return lowered_.graph->inputs()[lowered_.first_parameter() + i];
    }

    void add(const FoundUse& found) {
        const int index = lowered_.parameters[found.input];
        const ModelParameter& parameter = model_.parameters()[index];
        if (is_of_adapter(parameter.name)) return;
        if (!parameter.packed && parameter.tensor.dim() != 2) return;
        for (LinearLayer& layer : layers_)
            if (layer.parameter == index) return layer.uses.push_back(found.use);
        layers_.push_back({index,
                           input(found.input),
                           module_of_weight(parameter.name),
                           found.use.is_transposed,
                           {found.use},
                           false});
    }

    [[nodiscard]] std::optional<FoundUse> use_of(Node& node) const {
        const auto kind = node.kind();
        if (kind == aten::linear) return with_weight({&node, 0, 1, false});
        if (kind == aten::matmul || kind == aten::mm) return with_weight({&node, 0, 1, true});
        const bool plain_sum = kind == aten::addmm && constant_number(node, "alpha") == 1;
        return plain_sum ? with_weight({&node, 1, 2, true}) : std::nullopt;
    }

    // Finds the parameter that USE reads, directly or through transposes and casts.
    [[nodiscard]] std::optional<FoundUse> with_weight(LinearUse use) const {
        const Value* value = use.node->input(use.weight);
        for (;;) {
            if (const auto found = input_of_.find(value); found != input_of_.end())
                return FoundUse{use, found->second};
            if (turns(*value->node())) {
                use.is_transposed = !use.is_transposed;
            } else if (!passes_on(*value->node())) {
                return std::nullopt;
            }
            value = value->node()->input(0);
        }
    }

    // Returns true if only LAYER's products use VALUE. VALUE is the weight of LAYER, or a view of
    // it.
    [[nodiscard]] static bool only_multiplied(const Value& value, const LinearLayer& layer) {
        return std::ranges::all_of(value.uses(), [&](const Use& use) {
            if (use.offset == 0 && (turns(*use.user) || passes_on(*use.user)))
                return only_multiplied(*use.user->output(), layer);
            return std::ranges::any_of(layer.uses, [&](const LinearUse& known) {
                return known.node == use.user && known.weight == use.offset;
            });
        });
    }

    const Model& model_;
    const LoweredGraph& lowered_;
    std::unordered_map<const Value*, size_t> input_of_;
    std::vector<LinearLayer> layers_;
};

}  // namespace

std::string module_of(const std::string& name) {
    const size_t dot = name.rfind('.');
    return dot == std::string::npos ? "" : name.substr(0, dot);
}

std::string module_of_weight(const std::string& name) {
    constexpr std::string_view kWeight = ".weight";
    return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name;
}

std::string tied_head_of(const Model& model, int index) {
    const ModelParameter& parameter = model.parameters()[index];
    if (!parameter.aliases.empty()) return module_of_weight(parameter.aliases.front());
    // In a decoder from a folder (graph/models/transformer.h), parameter 0 is the table of tokens.
    // The constant `is_tied` says whether the output layer shares it.
    Module& module = const_cast<Model&>(model).module();  // only read
    const auto tied = module.type()->findConstant("is_tied");
    if (index != 0 || !tied || !tied->isBool() || !tied->toBool()) return "";
    return parameter.name.starts_with("gpt_neox.") ? "embed_out" : "lm_head";
}

std::vector<LinearLayer> find_linear_layers(const Model& model, const LoweredGraph& lowered) {
    return Finder(model, lowered).take();
}

}  // namespace dslaunch::graph

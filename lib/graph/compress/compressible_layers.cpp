#include "graph/compress/compressible_layers.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "graph/adapter/linear_layers.h"
#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

namespace {

std::vector<std::string> names_of(const Model& model, int index) {
    const ModelParameter& parameter = model.parameters()[index];
    std::vector<std::string> names = {module_of_weight(parameter.name)};
    for (const std::string& alias : parameter.aliases) names.push_back(module_of_weight(alias));
    const std::string head = tied_head_of(model, index);
    if (!head.empty() && std::ranges::find(names, head) == names.end()) names.push_back(head);
    return names;
}

bool passes_on(const Node& node) {
    return is_one_of(node, {"aten::to", "aten::type_as", "aten::contiguous", "aten::detach",
                            "aten::t", "aten::numpy_T", "aten::transpose"});
}

class Finder {
  public:
    Finder(const Model& model, const LoweredGraph& lowered) : model_(model), lowered_(lowered) {
        for (size_t i = 0; i < lowered.parameters.size(); ++i)
            parameter_of_[lowered.graph->inputs()[lowered.first_parameter() + i]] =
                lowered.parameters[i];
    }

    [[nodiscard]] std::vector<CompressibleLayer> run() {
        for (const LinearLayer& linear : find_linear_layers(model_, lowered_)) {
            if (model_.parameters()[linear.parameter].packed) continue;
            for (const LinearUse& use : linear.uses) {
                CompressibleLayer& layer = layer_of(linear.parameter, LayerSort::kLinear);
                layer.is_transposed = linear.is_transposed;
                add(layer, *use.node, use.weight, use.input);
                add_bias(layer, *use.node);
            }
        }
        for_each_node(*lowered_.graph->block(), [this](Node& node) {
            if (node.kind() == aten::embedding) add_table(node);
            const bool is_plain = node.kind() == aten::conv2d;
            if (is_plain || is_one_of(node, {"aten::convolution", "aten::_convolution"}))
                add_convolution(node);
        });
        return std::move(layers_);
    }

  private:
    CompressibleLayer& layer_of(int parameter, LayerSort sort) {
        for (CompressibleLayer& layer : layers_)
            if (layer.parameter == parameter) return layer;
        CompressibleLayer& layer = layers_.emplace_back();
        layer.sort = sort;
        layer.parameter = parameter;
        layer.names = names_of(model_, parameter);
        return layer;
    }

    // Follows INPUT of NODE back to a parameter. Returns the place where the parameter is read, and
    // the parameter's index; nothing if INPUT does not come from a parameter.
    [[nodiscard]] std::optional<std::pair<NodeInput, int>> read_of(Node& node, size_t input) const {
        NodeInput read{&node, input};
        for (;;) {
            Value* const value = read.node->input(read.input);
            if (const auto found = parameter_of_.find(value); found != parameter_of_.end())
                return std::pair{read, found->second};
            if (!passes_on(*value->node())) return std::nullopt;
            read = {value->node(), 0};
        }
    }

    void add(CompressibleLayer& layer, Node& node, size_t weight, std::optional<size_t> input) {
        const auto read = read_of(node, weight);
        if (!read) return;
        const auto is_it = [&](const NodeInput& known) {
            return known.node == read->first.node && known.input == read->first.input;
        };
        if (std::ranges::none_of(layer.weight_reads, is_it))
            layer.weight_reads.push_back(read->first);
        if (input) layer.input_reads.push_back({&node, *input});
    }

    void add_bias(CompressibleLayer& layer, Node& node) {
        std::optional<size_t> at;
        if (node.kind() == aten::addmm) at = 0;
        if (!at) at = argument_at(node, "bias");
        if (!at || !is_tensor(*node.input(*at))) return add_named_bias(layer);
        const auto read = read_of(node, *at);
        if (!read) return;
        Value* const bias = read->first.node->input(read->first.input);
        if (std::ranges::find(layer.biases, bias) == layer.biases.end())
            layer.biases.push_back(bias);
    }

    // Adds to LAYER the bias that forward adds after the product. Finds the bias by its name.
    void add_named_bias(CompressibleLayer& layer) {
        for (const auto& [value, parameter] : parameter_of_)
            if (model_.parameters()[parameter].name == layer.names.front() + ".bias" &&
                std::ranges::find(layer.biases, value) == layer.biases.end())
                layer.biases.push_back(const_cast<Value*>(value));
    }

    void add_table(Node& node) {
        const auto read = read_of(node, 0);
        if (!read || model_.parameters()[read->second].packed) return;
        CompressibleLayer& layer = layer_of(read->second, LayerSort::kTable);
        layer.is_also_table = layer.sort == LayerSort::kLinear;
        add(layer, node, 0, std::nullopt);
    }

    void add_convolution(Node& node) {
        const auto read = read_of(node, 1);
        const auto transposed = constant_number(node, "transposed");
        if (!read || transposed.value_or(0) != 0) return;
        if (model_.parameters()[read->second].tensor.dim() != 4) return;
        CompressibleLayer& layer = layer_of(read->second, LayerSort::kConvolution);
        add(layer, node, 1, 0);
        add_bias(layer, node);
    }

    const Model& model_;
    const LoweredGraph& lowered_;
    std::unordered_map<const Value*, int> parameter_of_;
    std::vector<CompressibleLayer> layers_;
};

}  // namespace

std::vector<CompressibleLayer> find_compressible_layers(const Model& model,
                                                        const LoweredGraph& lowered) {
    return Finder(model, lowered).run();
}

}  // namespace dslaunch::graph

#include "graph/segment/split_backward.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_map>
#include <utility>

namespace dslaunch::graph {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using AutogradNode = torch::autograd::Node;
using torch::autograd::variable_list;

struct WeightHalf::Graph {
    edge_list roots;
    variable_list gradients;
};

WeightHalf::WeightHalf() = default;
WeightHalf::WeightHalf(WeightHalf&& other) noexcept = default;
WeightHalf& WeightHalf::operator=(WeightHalf&& other) noexcept = default;
WeightHalf::~WeightHalf() = default;

void WeightHalf::run() {
    const std::unique_ptr<Graph> graph = std::move(graph_);
    if (graph == nullptr || graph->roots.empty()) return;
    Engine::get_default_engine().execute(graph->roots, graph->gradients, /*keep_graph=*/false,
                                         /*create_graph=*/false, /*accumulate_grad=*/true);
}

namespace {

// A hook on a node. When the node runs for the first time, the hook stores the gradients that
// arrive.
class Keep final : public torch::autograd::FunctionPreHook {
  public:
    explicit Keep(std::shared_ptr<variable_list> into) : into_(std::move(into)) {}
    variable_list operator()(const variable_list& gradients) override {
        if (into_ != nullptr) *std::exchange(into_, nullptr) = gradients;
        return gradients;
    }

  private:
    std::shared_ptr<variable_list> into_;  // shared with the reader, which waits until the node has
                                           // run
};

// The autograd graph of a backward that begins at some roots, and the nodes in it from which a path
// leads to the inputs.
class Ways {
  public:
    explicit Ways(const edge_list& inputs) {
        for (const Edge& input : inputs) leads_[input.function.get()] = true;
    }

    // Visits the graph depth first, without recursion, because it may be deep.
    void visit(const std::shared_ptr<AutogradNode>& root) {
        std::vector<std::pair<AutogradNode*, size_t>> path;  // nodes, each with its next edge
        const auto enter = [&](const std::shared_ptr<AutogradNode>& node) {
            if (leads_.contains(node.get())) return;
            leads_[node.get()] = false;
            nodes_.push_back(node);
            path.emplace_back(node.get(), 0);
        };
        enter(root);
        while (!path.empty()) {
            AutogradNode* const node = path.back().first;
            const edge_list& edges = node->next_edges();
            if (path.back().second == edges.size()) {
                for (const Edge& edge : edges)
                    if (edge.is_valid() && leads_.at(edge.function.get())) leads_[node] = true;
                path.pop_back();
                continue;
            }
            const Edge& edge = edges[path.back().second++];
            if (edge.is_valid()) enter(edge.function);
        }
    }

    [[nodiscard]] bool leads_to_input(const Edge& edge) const {
        return edge.is_valid() && leads_.at(edge.function.get());
    }
    // The nodes that lead to inputs. A node in `partings` also has an edge to a node that does not
    // lead to inputs, but only to parameters. A node in `plain` has no such edge.
    struct Split {
        std::vector<std::shared_ptr<AutogradNode>> partings;
        std::vector<std::shared_ptr<AutogradNode>> plain;
    };
    [[nodiscard]] Split split() const {
        Split made;
        for (const std::shared_ptr<AutogradNode>& node : nodes_) {
            if (!leads_.at(node.get())) continue;
            bool parts = false;
            for (const Edge& edge : node->next_edges())
                parts = parts || (edge.is_valid() && !leads_to_input(edge));
            (parts ? made.partings : made.plain).push_back(node);
        }
        return made;
    }

  private:
    std::unordered_map<const AutogradNode*, bool> leads_;
    std::vector<std::shared_ptr<AutogradNode>> nodes_;
};

}  // namespace

WeightHalf backward_inputs(const std::vector<at::Tensor>& roots,
                           const std::vector<at::Tensor>& gradients,
                           const std::vector<at::Tensor>& leaves) {
    edge_list inputs;
    for (const at::Tensor& leaf : leaves)
        inputs.emplace_back(torch::autograd::impl::grad_accumulator(leaf), 0);
    edge_list begins;
    Ways ways(inputs);
    for (const at::Tensor& root : roots) {
        begins.push_back(torch::autograd::impl::gradient_edge(root));
        ways.visit(begins.back().function);
    }
    WeightHalf half;
    half.graph_ = std::make_unique<WeightHalf::Graph>();
    WeightHalf::Graph& left = *half.graph_;
    edge_list to_inputs;
    variable_list to_inputs_gradients;
    for (size_t i = 0; i < begins.size(); ++i) {
        const bool leads = ways.leads_to_input(begins[i]);
        (leads ? to_inputs : left.roots).push_back(begins[i]);
        (leads ? to_inputs_gradients : left.gradients).push_back(gradients[i]);
    }
    if (to_inputs.empty()) return half;

    std::vector<std::pair<std::shared_ptr<AutogradNode>, std::shared_ptr<variable_list>>> kept;
    const Ways::Split split = ways.split();
    for (const std::shared_ptr<AutogradNode>& node : split.partings) {
        kept.emplace_back(node, std::make_shared<variable_list>());
        node->add_pre_hook(std::make_unique<Keep>(kept.back().second));
    }
    const variable_list made = Engine::get_default_engine().execute(
        to_inputs, to_inputs_gradients, /*keep_graph=*/true, /*create_graph=*/false,
        /*accumulate_grad=*/false, inputs);
    for (size_t i = 0; i < leaves.size(); ++i) leaves[i].mutable_grad() = made[i];
    // Frees the variables that the plain nodes have saved, because neither half of the backward
    // needs them any more. The nodes themselves still exist, because variables that nodes in
    // `partings` have saved refer to them.
    for (const std::shared_ptr<AutogradNode>& node : split.plain) node->release_variables();
    for (const auto& [node, came] : kept) {
        // The second half then follows only edges that the first half did not follow. Nodes that
        // only the first half needed are freed.
        for (Edge& edge : node->next_edges())
            if (ways.leads_to_input(edge)) edge = Edge();
        for (size_t i = 0; i < came->size(); ++i) {
            if (!(*came)[i].defined()) continue;
            left.roots.emplace_back(node, static_cast<uint32_t>(i));
            left.gradients.push_back((*came)[i]);
        }
    }
    return half;
}

}  // namespace dslaunch::graph

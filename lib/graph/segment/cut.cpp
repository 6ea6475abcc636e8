#include "graph/segment/cut.h"

#include <ATen/core/interned_strings.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

namespace prim = c10::prim;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

namespace {

bool is_construct(const Node& node) {
    return node.kind() == prim::ListConstruct || node.kind() == prim::TupleConstruct;
}

// True if NODE itself may write to memory that existed before it.
bool may_write(const Node& node) {
    if (const c10::FunctionSchema* schema = node.maybeSchema()) return schema->is_mutable();
    return node.kind() == prim::CallMethod || node.kind() == prim::CallFunction ||
           node.kind() == prim::SetAttr;
}

// The range of nodes over which a value of the top level is alive.
struct Span {
    Value* value = nullptr;
    int64_t defined = -1;   // index of the node that makes it; -1 for an argument
    int64_t last_use = -1;  // index of the last node that reads it, nodes.size() for the graph's
                            // outputs
};

class CutFinder {
  public:
    CutFinder(const LoweredGraph& lowered, const Model& model) : lowered_(lowered), model_(model) {}

    CutMap run() {
        collect_nodes();
        collect_spans();
        forbid_written_values();
        count_places();
        return std::move(map_);
    }

  private:
    [[nodiscard]] bool is_lifted(const Value* value) const {
        const Graph& graph = *lowered_.graph;
        if (value->node() != graph.param_node()) return false;
        const bool is_module = lowered_.module_input && value->offset() == 0;
        return is_module || value->offset() >= lowered_.first_parameter();
    }

    void collect_nodes() {
        for (Node* node : lowered_.graph->nodes()) {
            bool free = node->kind() == prim::Constant;
            if (is_construct(*node) && !node->inputs().empty()) {
                free = std::all_of(node->inputs().begin(), node->inputs().end(),
                                   [&](const Value* input) {
                                       return is_lifted(input) || map_.everywhere.count(input) > 0;
                                   });
                // An empty or constant list may be appended to; only lists of parameters are shared
                // freely.
                free = free && std::any_of(node->inputs().begin(), node->inputs().end(),
                                           [&](const Value* input) { return is_lifted(input); });
            }
            if (free) {
                for (const Value* output : node->outputs()) map_.everywhere.insert(output);
            } else {
                index_[node] = static_cast<int64_t>(map_.nodes.size());
                map_.nodes.push_back(node);
            }
        }
    }

    // The place of the top-level node that NODE is, or is inside of.
    [[nodiscard]] int64_t top_index(const Node* node) const {
        if (node == lowered_.graph->return_node()) return static_cast<int64_t>(map_.nodes.size());
        const auto found = index_.find(top_of(node));
        return found == index_.end() ? -1 : found->second;
    }

    void add_span(Value* value, int64_t defined) {
        if (is_lifted(value) || map_.everywhere.count(value) > 0) return;
        Span span{value, defined, -1};
        for (const auto& use : value->uses())
            span.last_use = std::max(span.last_use, top_index(use.user));
        spans_.push_back(span);
    }

    void collect_spans() {
        for (Value* input : lowered_.graph->inputs()) add_span(input, -1);
        for (size_t i = 0; i < map_.nodes.size(); ++i)
            for (Value* output : map_.nodes[i]->outputs())
                add_span(output, static_cast<int64_t>(i));
        allowed_.assign(map_.nodes.size() + 1, true);
        forbid_inside_guards();
    }

    // A script leaves a `with` in the segment in which it entered it, and computes gradients again
    // in the segment in which it ceased to.
    void forbid_inside_guards() {
        static const auto set_grad_enabled = c10::Symbol::fromQualString("aten::set_grad_enabled");
        int64_t depth = 0;
        bool without_gradients = false;
        for (size_t i = 0; i < map_.nodes.size(); ++i) {
            const Node& node = *map_.nodes[i];
            if (depth > 0 || without_gradients) allowed_[i] = false;
            if (node.kind() == prim::Enter) ++depth;
            if (node.kind() == prim::Exit) --depth;
            if (node.kind() == set_grad_enabled)
                without_gradients = torch::jit::constant_as<bool>(node.input(0)) != true;
        }
    }

    // Alias analysis takes all inputs of a graph to be possibly the same tensor. The inputs here
    // are distinct (parameters by identity, arguments by the data), so the analysis runs on a copy
    // in which each is made by a node of its own.
    void forbid_written_values() {
        std::vector<int64_t> writers;
        for (size_t i = 0; i < map_.nodes.size(); ++i)
            if (is_any_node_of(*map_.nodes[i], may_write))
                writers.push_back(static_cast<int64_t>(i));
        if (writers.empty()) return;

        std::shared_ptr<Graph> scratch = lowered_.graph->copy();
        std::unordered_map<const Value*, Value*> twin;
        std::unordered_map<const Node*, Node*> node_twin;
        auto it = scratch->nodes().begin();
        for (Node* node : lowered_.graph->nodes()) {
            node_twin[node] = *it;
            for (size_t o = 0; o < node->outputs().size(); ++o)
                twin[node->output(o)] = (*it)->output(o);
            ++it;
        }
        torch::jit::WithInsertPoint at_start(*scratch->nodes().begin());
        for (size_t i = 0; i < scratch->inputs().size(); ++i) {
            Value* input = scratch->inputs()[i];
            twin[lowered_.graph->inputs()[i]] = input;
            if (!is_tensor(*input)) continue;
            Value* fresh = scratch->insert(c10::aten::empty, {std::vector<int64_t>{1}});
            input->replaceAllUsesWith(fresh);
            twin[lowered_.graph->inputs()[i]] = fresh;
        }
        const torch::jit::AliasDb aliases(scratch);
        for (const int64_t writer : writers) {
            Node* node = node_twin.at(map_.nodes[writer]);
            for (const Span& span : spans_) {
                if (span.defined >= writer || span.last_use < 0) continue;
                if (!aliases.writesToAlias(node, {twin.at(span.value)})) continue;
                const int64_t last = std::min(writer, span.last_use);
                for (int64_t p = span.defined + 1; p <= last; ++p) allowed_[p] = false;
            }
        }
    }

    void count_places() {
        const auto count = static_cast<int64_t>(map_.nodes.size());
        std::vector<int64_t> change(static_cast<size_t>(count) + 2, 0);
        for (const Span& span : spans_) {
            if (span.last_use <= span.defined) continue;
            ++change[span.defined + 1];
            --change[span.last_use + 1];
        }
        const std::vector<int64_t> numel = first_read_numel();
        int64_t live = change[0];
        int64_t before = 0;
        for (int64_t p = 1; p < count; ++p) {
            live += change[p];
            before += numel[p - 1];
            if (allowed_[p]) map_.places.push_back({p, live, before});
        }
    }

    // The number of elements, by node, of the parameters that the node is the first to read.
    [[nodiscard]] std::vector<int64_t> first_read_numel() const {
        std::vector<int64_t> numel(map_.nodes.size(), 0);
        for (size_t i = 0; i < lowered_.parameters.size(); ++i) {
            int64_t first = static_cast<int64_t>(map_.nodes.size());
            visit_uses(lowered_.graph->inputs()[lowered_.first_parameter() + i], first);
            if (first < static_cast<int64_t>(map_.nodes.size()))
                numel[first] += model_.parameters()[lowered_.parameters[i]].weight_numel();
        }
        return numel;
    }

    void visit_uses(const Value* value, int64_t& first) const {
        for (const auto& use : value->uses()) {
            const int64_t index = top_index(use.user);
            if (index >= 0) {
                first = std::min(first, index);
            } else {
                for (const Value* output : use.user->outputs()) visit_uses(output, first);
            }
        }
    }

    const LoweredGraph& lowered_;
    const Model& model_;
    CutMap map_;
    std::unordered_map<const Node*, int64_t> index_;
    std::vector<Span> spans_;
    std::vector<char> allowed_;
};

}  // namespace

CutMap find_cuts(const LoweredGraph& lowered, const Model& model) {
    return CutFinder(lowered, model).run();
}

std::vector<Value*> CutMap::alive_at(int64_t position, const LoweredGraph& lowered) const {
    std::unordered_map<const Node*, int64_t> index;
    for (size_t i = 0; i < nodes.size(); ++i) index[nodes[i]] = static_cast<int64_t>(i);
    Graph& graph = *lowered.graph;
    const auto used_from = [&](const Value* value) {
        for (const auto& use : value->uses()) {
            if (use.user == graph.return_node()) return true;
            const auto found = index.find(top_of(use.user));
            if (found != index.end() && found->second >= position) return true;
        }
        return false;
    };
    std::vector<Value*> alive;
    for (size_t i = lowered.first_argument(); i < lowered.first_parameter(); ++i)
        if (used_from(graph.inputs()[i])) alive.push_back(graph.inputs()[i]);
    for (int64_t i = 0; i < position; ++i)
        for (Value* output : nodes[i]->outputs())
            if (everywhere.count(output) == 0 && used_from(output)) alive.push_back(output);
    return alive;
}

}  // namespace dslaunch::graph

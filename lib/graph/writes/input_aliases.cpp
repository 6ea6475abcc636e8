#include "graph/writes/input_aliases.h"

#include <ATen/core/interned_strings.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <vector>

#include "graph/archive/in_place.h"
#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

namespace {

using Twins = std::unordered_map<const Value*, Value*>;

// Pairs the values of FROM with those of its copy TO.
void pair_values(const Block& from, Block& to, Twins& twins) {
    for (size_t i = 0; i < from.inputs().size(); ++i) twins[from.inputs()[i]] = to.inputs()[i];
    auto it = to.nodes().begin();
    for (const Node* node : from.nodes()) {
        Node* const twin = *it;
        ++it;
        for (size_t o = 0; o < node->outputs().size(); ++o)
            twins[node->output(o)] = twin->output(o);
        for (size_t b = 0; b < node->blocks().size(); ++b)
            pair_values(*node->blocks()[b], *twin->blocks()[b], twins);
    }
}

// True if NODE, which writes its inputs WRITTEN, takes constants besides and lies in no branch.
bool takes_constants(const Node& node, const std::vector<size_t>& written) {
    if (node.owningBlock() != node.owningGraph()->block()) return false;
    for (size_t i = 0; i < node.inputs().size(); ++i)
        if (std::ranges::count(written, i) == 0 &&
            node.input(i)->node()->kind() != c10::prim::Constant)
            return false;
    return true;
}

}  // namespace

InputAliases::InputAliases(const torch::jit::Graph& graph)
    : sets_(graph), scratch_(const_cast<torch::jit::Graph&>(graph).copy()) {
    pair_values(*graph.block(), *scratch_->block(), twins_);
    const torch::jit::WithInsertPoint at_start(*scratch_->nodes().begin());
    for (Value* input : scratch_->inputs()) {
        if (!is_tensor(*input)) continue;
        Value* const fresh = scratch_->insert(c10::aten::empty, {std::vector<int64_t>{1}});
        input->replaceAllUsesWith(fresh);
        twins_[graph.inputs()[input->offset()]] = fresh;
    }
    aliases_ = std::make_unique<torch::jit::AliasDb>(scratch_);
}

InputAliases::~InputAliases() = default;

bool InputAliases::may_share(const Value* value, const Value* root) const {
    if (sets_.set_of(value) != sets_.set_of(root)) return false;
    const auto a = twins_.find(value), b = twins_.find(root);
    if (a == twins_.end() || b == twins_.end()) return false;
    return a->second == b->second || aliases_->mayContainAlias(a->second, b->second);
}

std::set<const Value*> find_written_inputs(const torch::jit::Graph& graph, WritesCounted counted) {
    std::vector<const Value*> operands;
    for_each_node(*graph.block(), [&](const Node& node) {
        const std::vector<size_t> inputs = written_inputs(node);
        if (counted == WritesCounted::kAll || !takes_constants(node, inputs))
            for (const size_t i : inputs) operands.push_back(node.input(i));
    });
    std::set<const Value*> written;
    if (operands.empty()) return written;
    const InputAliases aliases(graph);
    for (const Value* input : graph.inputs())
        for (const Value* operand : operands)
            if (aliases.may_share(operand, input)) written.insert(input);
    return written;
}

}  // namespace dslaunch::graph

#include "graph/writes/input_aliases.h"

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

namespace dslaunch::graph {

namespace {

// Returns true if NODE is in no branch, and all its inputs except WRITTEN are constants.
bool takes_constants(const Node& node, const std::vector<size_t>& written) {
    if (node.owningBlock() != node.owningGraph()->block()) return false;
    for (size_t i = 0; i < node.inputs().size(); ++i)
        if (std::ranges::count(written, i) == 0 && node.input(i)->node()->kind() != prim::Constant)
            return false;
    return true;
}

}  // namespace

InputAliases::InputAliases(const Graph& graph)
    : sets_(graph), scratch_(const_cast<Graph&>(graph).copy()) {
    pair_twins(*graph.block(), *scratch_->block(), twins_);
    const WithInsertPoint at_start(*scratch_->nodes().begin());
    for (Value* input : scratch_->inputs()) {
        if (!is_tensor(*input)) continue;
        Value* const fresh = scratch_->insert(aten::empty, {std::vector<int64_t>{1}});
        input->replaceAllUsesWith(fresh);
        twins_.values[graph.inputs()[input->offset()]] = fresh;
    }
    aliases_ = std::make_unique<torch::jit::AliasDb>(scratch_);
}

InputAliases::~InputAliases() = default;

bool InputAliases::may_share(const Value* value, const Value* root) const {
    if (sets_.set_of(value) != sets_.set_of(root)) return false;
    const auto a = twins_.values.find(value), b = twins_.values.find(root);
    if (a == twins_.values.end() || b == twins_.values.end()) return false;
    return a->second == b->second || aliases_->mayContainAlias(a->second, b->second);
}

bool InputAliases::may_write(const Node& node, const Value* value) const {
    return aliases_->writesToAlias(twins_.nodes.at(&node), {twins_.values.at(value)});
}

std::vector<RootWrite> find_writes(const Graph& graph, const std::vector<Value*>& roots) {
    std::vector<RootWrite> operands, writes;
    for_each_node(*graph.block(), [&](const Node& node) {
        for (const size_t i : written_inputs(node))
            operands.push_back({const_cast<Node*>(&node), i, nullptr});
    });
    if (operands.empty()) return writes;
    const InputAliases aliases(graph);
    for (const RootWrite& operand : operands)
        for (Value* const root : roots)
            if (aliases.may_share(operand.node->input(operand.input), root))
                writes.push_back({operand.node, operand.input, root});
    return writes;
}

std::set<const Value*> find_written_inputs(const Graph& graph, WritesCounted counted) {
    const auto inputs = const_cast<Graph&>(graph).inputs();
    std::set<const Value*> written;
    for (const RootWrite& write : find_writes(graph, {inputs.begin(), inputs.end()}))
        if (counted == WritesCounted::kAll ||
            !takes_constants(*write.node, written_inputs(*write.node)))
            written.insert(write.root);
    return written;
}

}  // namespace dslaunch::graph

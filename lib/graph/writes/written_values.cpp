#include "graph/writes/written_values.h"

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <unordered_map>
#include <vector>

#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

namespace {

bool is_aliased(const std::vector<c10::Argument>& arguments, size_t index) {
    return index >= arguments.size() || arguments[index].alias_info() != nullptr;
}

// Unites the values of NODE, which has no blocks, that its schema calls aliases; all of them if it
// has no schema, as the nodes that make lists and tuples.
void unite_by_schema(const Node& node, MemorySets& sets) {
    const c10::FunctionSchema* schema = node.maybeSchema();
    const Value* all = nullptr;
    const auto add = [&](const Value* value, bool aliased) {
        if (!aliased || !may_hold_tensors(*value->type())) return;
        if (all != nullptr) sets.unite(value, all);
        all = value;
    };
    for (size_t i = 0; i < node.inputs().size(); ++i)
        add(node.input(i), schema == nullptr || is_aliased(schema->arguments(), i));
    for (size_t o = 0; o < node.outputs().size(); ++o)
        add(node.output(o), schema == nullptr || is_aliased(schema->returns(), o));
}

// Unites everything that the blocks of NODE read or make with what it makes.
void unite_blocks(const Node& node, MemorySets& sets) {
    const Value* all = nullptr;
    const auto add = [&](const Value* value) {
        if (!may_hold_tensors(*value->type())) return;
        if (all != nullptr) sets.unite(value, all);
        all = value;
    };
    for_each_node_of(node, [&](const Node& inner) {
        for (const Value* value : inner.inputs()) add(value);
        for (const Value* value : inner.outputs()) add(value);
        for (const Block* block : inner.blocks()) {
            for (const Value* value : block->inputs()) add(value);
            for (const Value* value : block->outputs()) add(value);
        }
    });
}

// Calls USE with each value that NODE or a node in its blocks writes in place.
void visit_writes(const Node& node, const std::function<void(const Value*)>& use) {
    for_each_node_of(node, [&](const Node& inner) {
        for (const size_t i : written_inputs(inner)) use(inner.input(i));
    });
}

// Calls USE with each value whose elements NODE or a node in its blocks reads.
void visit_reads(const Node& node, const std::function<void(const Value*)>& use) {
    for_each_node_of(node, [&](const Node& inner) {
        const c10::FunctionSchema* schema = inner.maybeSchema();
        for (size_t i = 0; schema != nullptr && i < inner.inputs().size(); ++i)
            if (may_hold_tensors(*inner.input(i)->type()) && !is_aliased(schema->arguments(), i))
                use(inner.input(i));
    });
}

// Returns true if NODE makes a list whose elements its readers look at and no more.
bool makes_read_list(const Node& node) {
    if (node.kind() != prim::ListConstruct) return false;
    return std::ranges::all_of(node.output()->uses(), [](const Use& use) {
        const c10::FunctionSchema* const schema = use.user->maybeSchema();
        return schema != nullptr && !is_aliased(schema->arguments(), use.offset);
    });
}

}  // namespace

MemorySets::MemorySets(const Graph& graph) {
    for (const Node* node : graph.nodes())
        if (!node->blocks().empty()) {
            unite_blocks(*node, *this);
        } else if (makes_read_list(*node)) {
            read_lists_.insert(node);
        } else {
            unite_by_schema(*node, *this);
        }
}

const Value* MemorySets::set_of(const Value* value) {
    const auto found = parent_.find(value);
    if (found == parent_.end() || found->second == value) return value;
    return found->second = set_of(found->second);
}

std::set<const Value*> find_written_values(const Graph& graph) {
    constexpr int64_t kInput = -1;
    MemorySets sets(graph);
    std::unordered_map<const Value*, int64_t> last_write;  // by set
    std::vector<const Node*> nodes(graph.nodes().begin(), graph.nodes().end());
    for (size_t i = 0; i < nodes.size(); ++i)
        visit_writes(*nodes[i], [&](const Value* value) {
            last_write[sets.set_of(value)] = static_cast<int64_t>(i);
        });
    std::set<const Value*> written;
    const auto look_at = [&](const Value* value, int64_t made) {
        const auto found = last_write.find(sets.set_of(value));
        if (found != last_write.end() && found->second > made) written.insert(value);
    };
    if (last_write.empty()) return written;
    for (const Value* input : graph.inputs()) look_at(input, kInput);
    for (size_t i = 0; i < nodes.size(); ++i) {
        for (const Value* output : nodes[i]->outputs()) look_at(output, static_cast<int64_t>(i));
        if (!sets.is_read_list(*nodes[i])) continue;
        // A list that is read later has what its elements are by then.
        for (const Value* element : nodes[i]->inputs()) {
            const auto found = last_write.find(sets.set_of(element));
            if (found != last_write.end() && found->second > static_cast<int64_t>(i))
                written.insert(nodes[i]->output());
        }
    }
    return written;
}

std::set<const Value*> find_inputs_written_and_read(const Graph& graph) {
    MemorySets sets(graph);
    std::set<const Value*> written, read;  // sets
    for (const Node* node : graph.nodes()) {
        visit_writes(*node, [&](const Value* value) { written.insert(sets.set_of(value)); });
        visit_reads(*node, [&](const Value* value) { read.insert(sets.set_of(value)); });
    }
    std::set<const Value*> both;
    for (const Value* input : graph.inputs())
        if (written.count(sets.set_of(input)) > 0 && read.count(sets.set_of(input)) > 0)
            both.insert(input);
    return both;
}

namespace {

// Returns true if NODE, which writes inputs WRITTEN, takes other constants and is in no branch.
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

#include "graph/writes/written_values.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

namespace {

bool is_aliased(const std::vector<c10::Argument>& arguments, size_t index) {
    return index >= arguments.size() || arguments[index].alias_info() != nullptr;
}

// Unites the values of NODE that its schema marks as aliases. NODE has no blocks. If NODE has no
// schema, like the nodes that make lists and tuples, unites all its values.
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

// Puts the outputs of NODE, and everything that the blocks of NODE read or make, into one set.
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

// Returns true if NODE makes a list whose readers only read its elements.
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
        // If an element is written after the list is made, later readers of the list see the
        // change.
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

}  // namespace dslaunch::graph

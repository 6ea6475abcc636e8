#include "graph/writes/hoisted_writes.h"

#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "graph/nodes/graph_nodes.h"
#include "graph/writes/input_aliases.h"
#include "graph/writes/no_grad.h"

namespace dslaunch::graph {

namespace {

constexpr const char* kByBatch = "with values that it computes from the batch";
constexpr const char* kByChance = "with random numbers";
constexpr const char* kTooLate = "after reading it";
constexpr const char* kByModule = "in a model that passes a whole module as an argument to a call";

// Returns true for operators that read no element of their inputs.
bool is_view(const Node& node) {
    return is_one_of(node, {"aten::detach",
                            "aten::alias",
                            "aten::t",
                            "aten::transpose",
                            "aten::permute",
                            "aten::view",
                            "aten::select",
                            "aten::slice",
                            "aten::unsqueeze",
                            "aten::squeeze",
                            "aten::expand",
                            "aten::narrow",
                            "aten::numpy_T",
                            "aten::view_as",
                            "aten::diagonal",
                            "aten::unbind",
                            "aten::split",
                            "aten::chunk",
                            "aten::size",
                            "aten::dim",
                            "aten::numel",
                            "prim::data",
                            "prim::dtype",
                            "prim::device",
                            "aten::requires_grad",
                            "aten::detach_",
                            "aten::is_floating_point",
                            "prim::ListConstruct",
                            "prim::TupleConstruct",
                            "prim::ListUnpack",
                            "prim::TupleUnpack"});
}

// Returns true for operators that change a buffer although their schema does not show it.
bool moves_statistics(const Node& node) {
    return is_one_of(node, {"aten::batch_norm", "aten::native_batch_norm",
                            "aten::_native_batch_norm_legit", "aten::instance_norm",
                            "aten::_batch_norm_impl_index", "aten::_batch_norm_with_update",
                            "aten::cudnn_batch_norm", "aten::miopen_batch_norm"});
}

// Returns true if VALUE is an input of the graph, or a view of an input, and has not been detached.
// PyTorch allows a write to a parameter, or to a view of it, only under torch.no_grad().
bool is_bare(const Value* value) {
    const Value* const root =
        follow_back(before_writes(value), [](const Value* at) -> const Value* {
            const Node& node = *at->node();
            const bool passes = node.kind() != prim::Param && is_view(node) &&
                                node.kind() != aten::detach && !node.inputs().empty();
            return passes ? before_writes(node.input(0)) : nullptr;
        });
    return root->node()->kind() == prim::Param;
}

// The part of a graph that computes the final values of some of its inputs, after all writes.
struct Slice {
    TellsDraw tells = nullptr;
    std::shared_ptr<Graph> graph;  // inputs: as in the whole graph; outputs: the values
    std::set<size_t> read;         // inputs that it uses
    bool draws = false;
};

// Removes the nodes of SLICE that its outputs do not need. Records the inputs that the remaining
// nodes read, and whether a remaining node draws random numbers.
void settle(Slice& slice) {
    torch::jit::EliminateDeadCode(
        slice.graph, torch::jit::DCESideEffectPolicy::ALLOW_DELETING_NODES_WITH_SIDE_EFFECTS);
    for (const Value* input : slice.graph->inputs())
        if (input->hasUses()) slice.read.insert(input->offset());
    for_each_node(*slice.graph->block(),
                  [&](Node& node) { slice.draws = slice.draws || slice.tells(node); });
}

Slice slice_of(Graph& whole, const std::vector<size_t>& wanted, TellsDraw tells) {
    Slice slice{tells, whole.copy(), {}};
    Graph& graph = *slice.graph;
    while (!graph.outputs().empty()) graph.eraseOutput(0);
    std::vector<Value*> copies(graph.inputs().size(), nullptr);
    {
        // The inputs are replaced by copies, which share no memory. Thus only writes to the wanted
        // inputs are kept.
        const WithInsertPoint at_start(*graph.nodes().begin());
        for (Value* input : graph.inputs()) {
            if (!is_tensor(*input)) continue;
            Value* const copy = graph.insert(aten::clone, {input});
            input->replaceAllUsesWith(copy);
            copy->node()->replaceInput(0, input);
            copies[input->offset()] = copy;
        }
    }
    for (const size_t input : wanted) graph.registerOutput(copies[input]);
    settle(slice);
    return slice;
}

// Returns the part of ALL that computes the outputs with the indices OUTPUTS.
Slice narrow(const Slice& all, const std::vector<size_t>& outputs) {
    Slice slice{all.tells, all.graph->copy(), {}};
    for (size_t o = slice.graph->outputs().size(); o-- > 0;)
        if (std::ranges::find(outputs, o) == outputs.end()) slice.graph->eraseOutput(o);
    settle(slice);
    return slice;
}

// Returns the values that may be one of INPUTS, a view of an input, or a list of these. The result
// may contain too many values, because it is found without alias analysis.
std::set<const Value*> near_inputs(Graph& graph, const std::vector<const Value*>& inputs) {
    std::set<const Value*> near(inputs.begin(), inputs.end());
    for_each_node(*graph.block(), [&](Node& node) {
        const bool is_near = std::ranges::any_of(
            node.inputs(), [&](const Value* input) { return near.count(input) > 0; });
        const c10::FunctionSchema* const schema = node.maybeSchema();
        const bool is_inside = node.owningBlock() != graph.block();
        for (size_t o = 0; o < node.outputs().size(); ++o) {
            const bool aliased = schema == nullptr || o >= schema->returns().size() ||
                                 schema->returns()[o].alias_info() != nullptr;
            if (is_inside || !node.blocks().empty() || (is_near && aliased))
                near.insert(node.output(o));
        }
        for (const Block* inner : node.blocks())
            for (const Value* value : inner->inputs()) near.insert(value);
    });
    return near;
}

class Hoister {
  public:
    Hoister(const Model& model, LoweredGraph& lowered, const std::vector<int>& parameters,
            TellsDraw draws)
        : model_(model), lowered_(lowered), parameters_(parameters), draws_(draws) {}

    void run() {
        std::map<int, std::string> kept;  // written in place, each with the reason
        std::vector<size_t> inputs;
        for (const int parameter : parameters_) inputs.push_back(input_of(parameter));
        all_ = slice_of(graph(), inputs, draws_);
        if (why_in_place(all_) != nullptr)
            for (size_t i = 0; i < parameters_.size(); ++i)
                if (const char* const why = why_in_place(narrow(all_, {i})))
                    kept.emplace(parameters_[i], why);
        const std::shared_ptr<Graph> whole = lowered_.graph;
        for (bool settled = false; !settled;) {
            lowered_.graph = whole->copy();
            std::vector<int> hoisted;
            for (const int parameter : parameters_)
                if (kept.count(parameter) == 0) hoisted.push_back(parameter);
            const std::set<int> early = take_out(hoisted);
            for (const int parameter : early) kept.emplace(parameter, kTooLate);
            settled = early.empty();
            if (settled)
                for (const std::vector<int>& group : groups_of(hoisted)) make_writes(*whole, group);
        }
        write_in_place(kept);
    }

  private:
    struct Write {
        Node* node = nullptr;
        size_t input = 0;
        int64_t place = 0;  // of its node at the top level
    };

    [[nodiscard]] size_t input_of(int parameter) const {
        const auto found = std::ranges::find(lowered_.parameters, parameter);
        return lowered_.first_parameter() +
               static_cast<size_t>(found - lowered_.parameters.begin());
    }
    [[nodiscard]] Graph& graph() const { return *lowered_.graph; }

    // Returns the reason why the values that SLICE computes cannot be known before the step; null
    // if they can.
    const char* why_in_place(const Slice& slice) {
        if (lowered_.takes_module) return kByModule;
        if (slice.draws) return kByChance;
        for (const size_t read : slice.read) {
            if (read < lowered_.first_parameter()) return kByBatch;
            if (read >= lowered_.first_buffer() && moves_by_batch(read)) return kByBatch;
        }
        return nullptr;
    }

    // Returns true if the value that forward writes to the buffer at INPUT depends on the batch or
    // on random numbers.
    bool moves_by_batch(size_t input) {
        const auto [found, fresh] = by_batch_.try_emplace(input, false);
        if (!fresh) return found->second;
        bool moves = false;
        for_each_node(*graph().block(), [&](Node& node) {
            if (!moves_statistics(node)) return;
            for (const Value* value : node.inputs())
                moves = moves || value == graph().inputs()[input];
        });
        const Slice slice = slice_of(graph(), {input}, draws_);
        moves = moves || slice.draws;
        // The new value of a buffer also depends on the batch if it is computed from an argument,
        // or from another buffer whose new value depends on the batch.
        for (const size_t read : slice.read)
            moves = moves || read < lowered_.first_parameter() ||
                    (read >= lowered_.first_buffer() && read != input && moves_by_batch(read));
        return by_batch_[input] = moves;
    }

    // Groups PARAMETERS: parameters that the same node writes are in one group.
    [[nodiscard]] std::vector<std::vector<int>> groups_of(
        const std::vector<int>& parameters) const {
        std::vector<std::vector<int>> groups;
        for (const int parameter : parameters) {
            std::vector<int> group{parameter};
            for (const std::set<int>& together : together_) {
                if (together.count(parameter) == 0) continue;
                for (auto other = groups.begin(); other != groups.end();) {
                    const bool joins = std::ranges::any_of(
                        *other, [&](int member) { return together.count(member) > 0; });
                    if (joins) group.insert(group.end(), other->begin(), other->end());
                    other = joins ? groups.erase(other) : other + 1;
                }
            }
            std::ranges::sort(group);
            groups.push_back(std::move(group));
        }
        return groups;
    }

    // Returns the parameter at ROOT, an input of the graph; -1 if it is not a parameter.
    [[nodiscard]] int parameter_at(const Value* root) const {
        const size_t first = lowered_.first_parameter();
        return root->offset() < first || root->offset() >= lowered_.first_buffer()
                   ? -1
                   : lowered_.parameters[root->offset() - first];
    }

    // Redirects the writes to PARAMETERS to copies that no node reads. Returns the parameters for
    // which this is not possible: the graph reads them before or while it writes them, or the write
    // may also reach another value.
    std::set<int> take_out(const std::vector<int>& parameters) {
        std::map<const Node*, int64_t> places;
        for (Node* node : graph().nodes()) places.emplace(node, std::ssize(places));
        std::map<int, std::vector<Write>> writes;
        std::set<int> early;
        together_.clear();
        std::vector<Value*> tensors;
        for (Value* input : graph().inputs())
            if (is_tensor(*input)) tensors.push_back(input);
        const std::vector<RootWrite> found = find_writes(graph(), tensors);
        std::set<std::pair<Node*, size_t>> outside;  // may reach other values, so must stay
        std::map<Node*, std::set<int>> together;
        for (const RootWrite& write : found)
            if (std::ranges::count(parameters, parameter_at(write.root)) == 0)
                outside.emplace(write.node, write.input);
        for (const auto& [node, input, root] : found) {
            const int parameter = parameter_at(root);
            if (std::ranges::count(parameters, parameter) == 0) continue;
            writes[parameter].push_back({node, input, places.at(top_of(node))});
            together[node].insert(parameter);
            if (is_bare(node->input(input))) bare_.insert(parameter);
            if (outside.count({node, input}) > 0) early.insert(parameter);
        }
        for (auto& [node, written] : together)
            if (written.size() > 1) together_.push_back(std::move(written));
        if (!early.empty()) return early;
        std::map<int, int64_t> last;
        std::set<std::pair<Node*, size_t>> done;
        for (const auto& [parameter, of_parameter] : writes)
            for (const Write& write : of_parameter) {
                last[parameter] = std::max(last[parameter], write.place);
                nodes_of_[parameter] = describe_node(*write.node);
                if (!done.emplace(write.node, write.input).second) continue;
                if (!divert(write, places)) early.insert(parameter);
            }
        torch::jit::EliminateDeadCode(lowered_.graph);
        const InputAliases aliases(graph());
        std::vector<const Value*> inputs;
        for (const auto& [parameter, written_last] : last)
            inputs.push_back(graph().inputs()[input_of(parameter)]);
        const std::set<const Value*> near = near_inputs(graph(), inputs);
        for_each_node(*graph().block(), [&](Node& node) {
            if (is_view(node)) return;
            const auto place = places.find(top_of(&node));
            for (const Value* value : node.inputs())
                for (const auto& [parameter, written_last] : last)
                    if (near.count(value) > 0 &&
                        aliases.may_share(value, graph().inputs()[input_of(parameter)]) &&
                        (place == places.end() || place->second <= written_last))
                        early.insert(parameter);
        });
        return early;
    }

    // Makes WRITE's node write to a copy. Returns false if it writes neither a tensor nor a list
    // that a node builds.
    bool divert(const Write& write, std::map<const Node*, int64_t>& places) {
        Value* const value = write.node->input(write.input);
        Value* copy = nullptr;
        const WithInsertPoint here(write.node);
        const auto note = [&](Value* made) {
            if (made->node()->owningBlock() == graph().block())
                places.emplace(made->node(), write.place);
            return made;
        };
        if (is_tensor(*value)) {
            copy = note(graph().insert(aten::clone, {value}));
        } else if (value->node()->kind() == prim::ListConstruct) {
            std::vector<Value*> elements;
            for (Value* element : value->node()->inputs())
                elements.push_back(note(graph().insert(aten::clone, {element})));
            const c10::TypePtr type = value->type()->expectRef<c10::ListType>().getElementType();
            copy = note(graph().insertNode(graph().createList(type, elements))->output());
        } else {
            return false;
        }
        for (size_t o = 0; o < write.node->outputs().size(); ++o)
            if (overwritten_as(*write.node, o) == value)
                write.node->output(o)->replaceAllUsesWith(value);
        write.node->replaceInput(write.input, copy);
        return true;
    }

    // Adds the part of the graph that computes PARAMETERS to LoweredGraph::writes.
    void make_writes(Graph& whole, const std::vector<int>& parameters) {
        ParameterWrites writes;
        std::vector<size_t> outputs;
        // Parameters are listed in the order of the outputs.
        for (size_t i = 0; i < parameters_.size(); ++i) {
            if (std::ranges::find(parameters, parameters_[i]) == parameters.end()) continue;
            outputs.push_back(i);
            writes.written.push_back(parameters_[i]);
            writes.nodes.push_back(nodes_of_.at(parameters_[i]));
        }
        Slice slice = narrow(all_, outputs);
        refuse_unclear(slice, writes.written);
        for (size_t i = slice.graph->inputs().size(); i-- > 0;)
            if (slice.read.count(i) == 0) slice.graph->eraseInput(i);
        for (const size_t read : slice.read) {
            if (read < lowered_.first_buffer()) {
                writes.parameters.push_back(lowered_.parameters[read - lowered_.first_parameter()]);
            } else {
                writes.buffers.push_back(lowered_.buffers[read - lowered_.first_buffer()]);
                writes.reads_moved_buffers = writes.reads_moved_buffers || is_moved(whole, read);
            }
        }
        writes.graph = slice.graph;
        lowered_.writes.push_back(std::move(writes));
    }

    // Refuses a parameter whose new value is computed from another trained parameter. A trace does
    // not show torch.no_grad(), so it does not show whether reading the other parameter needs a
    // gradient.
    void refuse_unclear(const Slice& slice, const std::vector<int>& written) const {
        for (const int parameter : written) {
            if (bare_.count(parameter) == 0) continue;
            for (const size_t read : slice.read) {
                if (read < lowered_.first_parameter() || read >= lowered_.first_buffer()) continue;
                const int other = lowered_.parameters[read - lowered_.first_parameter()];
                if (std::ranges::find(written, other) != written.end() ||
                    !model_.parameters()[other].tensor.requires_grad())
                    continue;
                fail(ExitCode::kInput,
                     "{0}: forward writes the trained parameter `{1}` from `{2}`, but a trace does "
                     "not record whether gradients flow from `{1}` to `{2}` here. If `{1}` is only "
                     "a copy that follows `{2}`, call requires_grad_(False) on `{1}`; if not, "
                     "export the model with torch.export",
                     nodes_of_.at(parameter), model_.parameters()[parameter].name,
                     model_.parameters()[other].name);
            }
        }
    }

    static bool is_moved(Graph& whole, size_t input) {
        return !find_writes(whole, {whole.inputs()[input]}).empty();
    }

    // Makes the graph itself write the parameters in KEPT, as under `torch.no_grad()`.
    void write_in_place(const std::map<int, std::string>& kept) {
        if (kept.empty()) return;
        std::vector<Value*> roots;
        for (const auto& [parameter, why] : kept)
            roots.push_back(graph().inputs()[input_of(parameter)]);
        const std::vector<RootWrite> writes = find_writes(graph(), roots);
        for (const RootWrite& write : writes)
            nodes_of_[parameter_at(write.root)] = describe_node(*write.node);
        for (const RootWrite& write : writes)
            for (size_t i = 0; i < write.node->inputs().size(); ++i) {
                Value* const value = write.node->input(i);
                if (!is_tensor(*value) || value->node()->kind() == aten::detach) continue;
                for (size_t o = 0; i == write.input && o < write.node->outputs().size(); ++o)
                    if (overwritten_as(*write.node, o) == value)
                        write.node->output(o)->replaceAllUsesWith(value);
                write.node->replaceInput(i, detached(value, write.node));
            }
        for (const auto& [parameter, why] : kept)
            lowered_.in_place.push_back({parameter, nodes_of_[parameter], why});
    }

    const Model& model_;
    LoweredGraph& lowered_;
    const std::vector<int>& parameters_;
    TellsDraw draws_;
    std::set<int> bare_;  // written without detach() and outside blocks without gradients
    Slice all_;           // computes all parameters_
    std::map<size_t, bool> by_batch_;
    std::map<int, std::string> nodes_of_;  // by parameter: the last node that writes it
    std::vector<std::set<int>> together_;  // parameters that one node writes
};

}  // namespace

void hoist_writes(const Model& model, LoweredGraph& lowered, const std::vector<int>& parameters,
                  TellsDraw draws) {
    Hoister(model, lowered, parameters, draws).run();
}

bool moves_by_batch(const LoweredGraph& lowered, const std::vector<size_t>& inputs,
                    TellsDraw draws) {
    const Slice slice = slice_of(*lowered.graph, inputs, draws);
    return slice.draws || (!slice.read.empty() && *slice.read.begin() < lowered.first_parameter());
}

}  // namespace dslaunch::graph

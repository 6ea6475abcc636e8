#include "graph/segment/cut.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "base/text.h"
#include "graph/draws/dropout_seeds.h"
#include "graph/nodes/graph_nodes.h"
#include "graph/writes/input_aliases.h"

namespace dslaunch::graph {

namespace {

bool is_construct(const Node& node) {
    return node.kind() == prim::ListConstruct || node.kind() == prim::TupleConstruct;
}

// Returns true if NODE itself may write to memory that existed before it.
bool may_write(const Node& node) {
    if (const c10::FunctionSchema* schema = node.maybeSchema()) return schema->is_mutable();
    return node.kind() == prim::CallMethod || node.kind() == prim::CallFunction ||
           node.kind() == prim::SetAttr;
}

// The range of nodes over which a top-level value is alive.
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
        const bool is_module = lowered_.takes_module && value->offset() == 0;
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
                // Clones a list only if it contains a parameter. Nodes may append to an empty list
                // or a list of constants, and all nodes must see the same list.
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

    // Returns the index of the top-level node that is NODE or contains it.
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

    // Forbids cuts inside a `with` block and while gradients are off: a script must end both in the
    // segment in which it began them.
    void forbid_inside_guards() {
        static const auto set_grad_enabled = Symbol::fromQualString("aten::set_grad_enabled");
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

    void forbid_written_values() {
        std::vector<int64_t> writers;
        for (size_t i = 0; i < map_.nodes.size(); ++i)
            if (is_any_node_of(*map_.nodes[i], may_write))
                writers.push_back(static_cast<int64_t>(i));
        if (writers.empty()) return;

        const InputAliases aliases(*lowered_.graph);
        for (const int64_t writer : writers) {
            for (const Span& span : spans_) {
                if (span.defined >= writer || span.last_use < 0) continue;
                if (!aliases.may_write(*map_.nodes[writer], span.value)) continue;
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

    // Returns a number for each node: the elements of the parameters that no earlier node reads.
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

namespace {

class Builder {
  public:
    Builder(const Model& model, const LoweredGraph& lowered, const CutMap& map,
            const SegmentNodes& range)
        : model_(model),
          lowered_(lowered),
          map_(map),
          range_(range),
          graph_(std::make_shared<Graph>()) {}

    Segment build(const std::vector<Value*>& live_in, const std::vector<Value*>& live_out) {
        segment_.draw_ordinal_first = range_.draw_ordinal_first;
        segment_.nodes = range_.end - range_.begin;
        for (Value* value : live_in) add_input(value);
        add_lifted_inputs(live_out);
        for (int64_t i = range_.begin; i < range_.end; ++i) clone(*map_.nodes[i]);
        for (Value* value : live_out) graph_->registerOutput(twin(value));
        segment_.name = name();
        segment_.graph = graph_;
        return std::move(segment_);
    }

  private:
    Value* add_input(Value* value) {
        Value* input = graph_->addInput();
        // Gives a tensor the general tensor type, because the shapes that a tracer recorded may
        // change, and because equal layers can share one Code only if their types are equal.
        input->setType(is_tensor(*value) ? c10::TensorType::get() : value->type());
        twins_[value] = input;
        return input;
    }

    // Adds inputs for parameters and buffers, in the order of the lowered graph's inputs.
    void add_lifted_inputs(const std::vector<Value*>& live_out) {
        std::unordered_map<const Value*, bool> read;
        for (int64_t i = range_.begin; i < range_.end; ++i) mark(*map_.nodes[i], read);
        for (Value* value : live_out) mark_value(value, read);
        const Graph& graph = *lowered_.graph;
        if (lowered_.takes_module && read.count(graph.inputs()[0]) > 0) {
            segment_.takes_module = true;
            Value* module = graph_->insertInput(0);
            module->setType(graph.inputs()[0]->type());
            twins_[graph.inputs()[0]] = module;
        }
        for (size_t i = 0; i < lowered_.parameters.size(); ++i)
            add_lifted(lowered_.first_parameter() + i, lowered_.parameters[i], read,
                       segment_.parameters);
        for (size_t i = 0; i < lowered_.buffers.size(); ++i)
            add_lifted(lowered_.first_buffer() + i, lowered_.buffers[i], read, segment_.buffers);
    }

    void add_lifted(size_t input, int owner, const std::unordered_map<const Value*, bool>& read,
                    std::vector<int>& list) {
        Value* value = lowered_.graph->inputs()[input];
        if (read.count(value) == 0) return;
        add_input(value);
        list.push_back(owner);
    }

    void mark_value(Value* value, std::unordered_map<const Value*, bool>& read) {
        if (!read.emplace(value, true).second) return;
        if (map_.everywhere.count(value) > 0) mark(*value->node(), read);
    }

    void mark(Node& node, std::unordered_map<const Value*, bool>& read) {
        for (Value* input : node.inputs()) mark_value(input, read);
        for (Block* block : node.blocks()) {
            for (Value* output : block->outputs()) mark_value(output, read);
            for (Node* inner : block->nodes()) mark(*inner, read);
        }
    }

    // Returns the segment's value for VALUE. Constants and lists of parameters are cloned when they
    // are needed, at the start of the segment.
    Value* twin(Value* value) {
        const auto found = twins_.find(value);
        if (found != twins_.end()) return found->second;
        DSL_CHECK(map_.everywhere.count(value) > 0,
                  "value %{} is read in a segment that it does not reach", value->debugName());
        Node* from = value->node();
        Node* copy = graph_->createClone(from, [this](Value* v) { return twin(v); });
        if (prologue_end_ == nullptr) {
            graph_->prependNode(copy);
        } else {
            copy->insertAfter(prologue_end_);
        }
        prologue_end_ = copy;
        for (size_t o = 0; o < from->outputs().size(); ++o)
            twins_[from->output(o)] = copy->output(o);
        return twins_.at(value);
    }

    void clone(Node& from) {
        Node* copy = graph_->createClone(&from, [this](Value* v) { return twin(v); });
        graph_->appendNode(copy);
        for (size_t o = 0; o < from.outputs().size(); ++o) {
            twins_[from.output(o)] = copy->output(o);
            if (is_tensor(*copy->output(o))) copy->output(o)->setType(c10::TensorType::get());
        }
        seed_draws(*copy, nullptr);
    }

    void seed_draws(Node& node, Value* trip) {
        for (Block* block : node.blocks()) {
            Value* inner_trip = node.kind() == prim::Loop ? inner_loop_trip(*block, trip) : trip;
            // Seeding adds nodes, so the list is copied first.
            std::vector<Node*> inner(block->nodes().begin(), block->nodes().end());
            for (Node* child : inner) seed_draws(*child, inner_trip);
        }
        if (draws(node)) insert_draw(&node, segment_.draws++, trip);
    }

    // Returns one number for the iterations of all surrounding loops: outer * 2^20 + inner.
    Value* inner_loop_trip(Block& body, Value* outer) {
        if (outer == nullptr || find_node(body, draws) == nullptr) return body.inputs()[0];
        WithInsertPoint at_start(*body.nodes().begin());
        Value* scaled = graph_->insert(aten::mul, {outer, int64_t{1} << 20});
        return graph_->insert(aten::add, {scaled, body.inputs()[0]});
    }

    // Returns the path of the innermost module that contains all parameters of the segment. If it
    // says too little, returns the modules of the first and the last parameter.
    [[nodiscard]] std::string name() const {
        if (segment_.parameters.empty()) return "forward";
        const std::vector<std::string> first = owner_path(segment_.parameters.front());
        const std::vector<std::string> last = owner_path(segment_.parameters.back());
        std::vector<std::string> common;
        for (size_t i = 0; i < std::min(first.size(), last.size()) && first[i] == last[i]; ++i)
            common.push_back(first[i]);
        // "blocks" alone would name every block.
        const bool says_which =
            !common.empty() && (common == first || common == last || common.size() > 1);
        return says_which ? join(common, ".") : join(first, ".") + ".." + join(last, ".");
    }

    [[nodiscard]] std::vector<std::string> owner_path(int parameter) const {
        std::vector<std::string> path = split(model_.parameters()[parameter].name, '.');
        if (path.size() > 1) path.pop_back();
        return path;
    }

    const Model& model_;
    const LoweredGraph& lowered_;
    const CutMap& map_;
    SegmentNodes range_;
    std::shared_ptr<Graph> graph_;
    Segment segment_;
    std::unordered_map<const Value*, Value*> twins_;
    Node* prologue_end_ = nullptr;
};

}  // namespace

Segment build_segment(const Model& model, const LoweredGraph& lowered, const CutMap& map,
                      const SegmentNodes& range, const LiveRange& live) {
    return Builder(model, lowered, map, range).build(live.in, live.out);
}

}  // namespace dslaunch::graph

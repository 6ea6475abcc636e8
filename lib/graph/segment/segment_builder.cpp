#include "graph/segment/segment_builder.h"

#include <ATen/core/interned_strings.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "base/text.h"
#include "graph/lower/dropout_seeds.h"
#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

namespace prim = c10::prim;
using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

namespace {

class Builder {
  public:
    Builder(const Model& model, const LoweredGraph& lowered, const CutMap& map,
            const SegmentRange& range)
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
        // Shapes that a tracer saw may change; the plain type lets equal layers share one Code.
        input->setType(is_tensor(*value) ? c10::TensorType::get() : value->type());
        twins_[value] = input;
        return input;
    }

    // Parameters and buffers in the order of the lowered graph's inputs.
    void add_lifted_inputs(const std::vector<Value*>& live_out) {
        std::unordered_map<const Value*, bool> read;
        for (int64_t i = range_.begin; i < range_.end; ++i) mark(*map_.nodes[i], read);
        for (Value* value : live_out) mark_value(value, read);
        const Graph& graph = *lowered_.graph;
        if (lowered_.module_input && read.count(graph.inputs()[0]) > 0) {
            segment_.module_input = true;
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

    // The segment's value for VALUE; constants and lists of parameters are cloned on demand, at the
    // start.
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

    // One number for the trips of all loops around: outer * 2^20 + inner.
    Value* inner_loop_trip(Block& body, Value* outer) {
        if (outer == nullptr || find_node(body, draws) == nullptr) return body.inputs()[0];
        torch::jit::WithInsertPoint at_start(*body.nodes().begin());
        Value* scaled = graph_->insert(c10::aten::mul, {outer, int64_t{1} << 20});
        return graph_->insert(c10::aten::add, {scaled, body.inputs()[0]});
    }

    // The module that the segment's parameters have in common, or those of the first and the last
    // one.
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
    SegmentRange range_;
    std::shared_ptr<Graph> graph_;
    Segment segment_;
    std::unordered_map<const Value*, Value*> twins_;
    Node* prologue_end_ = nullptr;
};

}  // namespace

Segment build_segment(const Model& model, const LoweredGraph& lowered, const CutMap& map,
                      const SegmentRange& range, const LiveRange& live) {
    return Builder(model, lowered, map, range).build(live.in, live.out);
}

}  // namespace dslaunch::graph

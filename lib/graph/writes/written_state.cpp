#include "graph/writes/written_state.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/error.h"
#include "graph/memory/shared_storage.h"
#include "graph/nodes/graph_nodes.h"
#include "graph/writes/hoisted_writes.h"
#include "graph/writes/input_aliases.h"
#include "graph/writes/no_grad.h"

namespace dslaunch::graph {

namespace {

class Settler {
  public:
    Settler(Model& model, LoweredGraph& lowered, TellsDraw draws)
        : model_(model), lowered_(lowered), draws_(draws), graph_(*lowered.graph) {}

    void run() {
        const std::set<Value*> written = written_roots();
        if (written.empty()) return;
        // Constants are listed in the order of their nodes, which is the same on every rank.
        std::vector<Value*> constants;
        for_each_node(*graph_.block(), [&](Node& node) {
            if (node.kind() == prim::Constant && written.count(node.output()) > 0)
                constants.push_back(node.output());
        });
        copy_arguments(written);
        hold_frozen(written);  // removes inputs of the graph
        hold_constants(constants);
        std::vector<int> trained;
        for (size_t i = 0; i < lowered_.parameters.size(); ++i)
            if (written.count(graph_.inputs()[lowered_.first_parameter() + i]) > 0)
                trained.push_back(lowered_.parameters[i]);
        if (!trained.empty()) hoist_writes(model_, lowered_, trained, draws_);
    }

  private:
    // Returns the inputs and constants that some node writes.
    std::set<Value*> written_roots() {
        std::vector<Value*> roots;
        for (Value* input : graph_.inputs())
            if (is_tensor(*input)) roots.push_back(input);
        for_each_node(*graph_.block(), [&](Node& node) {
            if (node.kind() == prim::Constant && is_tensor(*node.output()))
                roots.push_back(node.output());
        });
        std::set<Value*> written;
        for (const RootWrite& write : find_writes(graph_, roots)) {
            written.insert(write.root);
            writers_[write.root].emplace_back(write.node, write.input);
        }
        return written;
    }

    void copy_arguments(const std::set<Value*>& written) {
        for (size_t i = lowered_.first_argument(); i < lowered_.first_parameter(); ++i) {
            Value* const input = graph_.inputs()[i];
            if (written.count(input) == 0) continue;
            const WithInsertPoint at_start(*graph_.nodes().begin());
            Value* const copy = graph_.insert(aten::clone, {input});
            input->replaceAllUsesWith(copy);
            copy->node()->replaceInput(0, input);
        }
    }

    // Detaches the tensors whose values are written into ROOT. PyTorch writes parameters without
    // gradients, but a trace does not show this.
    void detach_sources(Value* root) {
        for (const auto& [node, written] : writers_.at(root))
            for (size_t i = 0; i < node->inputs().size(); ++i) {
                Value* const source = node->input(i);
                const bool is_list = source->node()->kind() == prim::ListConstruct;
                if (i == written || !(is_tensor(*source) || is_list)) continue;
                if (source->node()->kind() == aten::detach) continue;
                if (Value* const without = detached(source, node)) node->replaceInput(i, without);
            }
    }

    Value* buffer_input(int buffer) {
        const auto found = std::ranges::find(lowered_.buffers, buffer);
        const auto index = static_cast<size_t>(found - lowered_.buffers.begin());
        if (found != lowered_.buffers.end())
            return graph_.inputs()[lowered_.first_buffer() + index];
        lowered_.buffers.push_back(buffer);
        Value* const input = graph_.addInput();
        input->setType(c10::TensorType::get());
        return input;
    }

    void hold_constants(const std::vector<Value*>& written) {
        std::vector<Value*> constants;
        for_each_node(*graph_.block(), [&](Node& node) {
            if (node.kind() != prim::Constant || !is_tensor(*node.output())) return;
            const at::Tensor tensor = torch::jit::toIValue(node.output())->toTensor();
            if (tensor.defined() && tensor.has_storage()) constants.push_back(node.output());
        });
        for (Value* root : written) {
            detach_sources(root);
            const at::Tensor tensor = torch::jit::toIValue(root)->toTensor();
            for (Value* same : constants) {
                const at::Tensor other = torch::jit::toIValue(same)->toTensor();
                if (!same->hasUses() || !overlap(tensor, other)) continue;
                if (!is_same_view(tensor, other))
                    fail(ExitCode::kInput,
                         "{}: this operator writes a tensor constant that shares memory with "
                         "another constant (one is a view), which is not supported; make it a "
                         "buffer (register_buffer)",
                         describe_node(*writers_.at(root).front().first));
                same->replaceAllUsesWith(buffer_input(model_.hold_constant(tensor)));
            }
        }
    }

    // Turns the untrained parameters that forward writes into buffers. Each rank changes its own
    // copy, as under DDP.
    void hold_frozen(const std::set<Value*>& written) {
        for (size_t i = lowered_.parameters.size(); i-- > 0;) {
            Value* const input = graph_.inputs()[lowered_.first_parameter() + i];
            const int parameter = lowered_.parameters[i];
            if (written.count(input) == 0 || model_.parameters()[parameter].tensor.requires_grad())
                continue;
            detach_sources(input);
            const int buffer = model_.hold_as_buffer(parameter);
            input->replaceAllUsesWith(buffer_input(buffer));
            graph_.eraseInput(lowered_.first_parameter() + i);
            lowered_.parameters.erase(lowered_.parameters.begin() + static_cast<std::ptrdiff_t>(i));
            for (int& other : lowered_.parameters) other -= other > parameter ? 1 : 0;
        }
    }

    Model& model_;
    LoweredGraph& lowered_;
    TellsDraw draws_;
    Graph& graph_;
    std::map<Value*, std::vector<std::pair<Node*, size_t>>> writers_;
};

}  // namespace

void settle_written_state(Model& model, LoweredGraph& lowered, TellsDraw draws) {
    Settler(model, lowered, draws).run();
    model.settle_state();
}

}  // namespace dslaunch::graph

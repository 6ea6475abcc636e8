#include "graph/lower/attribute_lifter.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "graph/nodes/graph_nodes.h"
#include "graph/writes/written_values.h"

namespace dslaunch::graph {

namespace {

using Object = c10::ivalue::Object;
using AttributeKey = std::pair<const Object*, std::string>;

bool holds_tensor(const IValue& value) {
    bool found = false;
    value.visit([&](const IValue& part) {
        found = found || part.isTensor();
        return found || part.isObject();
    });
    return found;
}

class Lifter {
  public:
    Lifter(const Model& model, LoweredGraph& lowered)
        : model_(model), lowered_(lowered), graph_(*lowered.graph) {}

    void run(const c10::intrusive_ptr<Object>& self, const std::function<void()>& simplify) {
        root_ = self;
        paths_[self.get()] = "";
        objects_[graph_.inputs()[0]] = self;
        find_written();
        drop_augmented();
        written_.clear();
        find_written();
        lift_block(*graph_.block(), /*nested=*/false);
        // Removes branches on constants (`if self.training:`). A write that is still inside a
        // branch afterwards is done at run time.
        simplify();
        constants_.clear();
        objects_.clear();
        written_.clear();
        objects_[graph_.inputs()[0]] = self;
        find_written();
        lifts_writes_ = true;
        lift_block(*graph_.block(), /*nested=*/false);
        for (const ModelState& state : lowered_.states)
            graph_.registerOutput(current_.at({state.object.get(), state.attribute}));
        torch::jit::EliminateDeadCode(lowered_.graph);
        settle_module();
        refuse_writes_to_loose();
    }

  private:
    const c10::intrusive_ptr<Object>* object_of(const Value* value) const {
        const auto found = objects_.find(value);
        return found == objects_.end() ? nullptr : &found->second;
    }

    // Records the object that the GetAttr NODE reads. Nodes are visited in their order, so that one
    // pass resolves chains of GetAttr.
    void follow(Node* node) {
        const auto* owner = object_of(node->input(0));
        if (owner == nullptr) return;
        const std::string& name = node->s(attr::name);
        const IValue value = (*owner)->getAttr(name);
        if (!value.isObject()) return;
        objects_[node->output()] = value.toObject();
        const std::string& prefix = paths_.at(owner->get());
        paths_.emplace(value.toObject().get(), prefix.empty() ? name : prefix + "." + name);
    }

    void find_written() {
        for_each_node(*graph_.block(), [this](Node& node) {
            if (node.kind() == prim::GetAttr) follow(&node);
            if (node.kind() == prim::SetAttr) {
                const auto* owner = object_of(node.input(0));
                if (owner != nullptr) written_.insert({owner->get(), node.s(attr::name)});
            }
        });
    }

    // Returns true if NODE, a SetAttr, assigns a parameter's own tensor to the parameter after
    // writing that tensor in place, as `self.weight += 1` does.
    bool is_augmented(const Node& node) const {
        const auto* owner = object_of(node.input(0));
        const std::string& name = node.s(attr::name);
        if (owner == nullptr || !(*owner)->getAttr(name).isTensor()) return false;
        const at::Tensor tensor = (*owner)->getAttr(name).toTensor();
        const int buffer = model_.buffer_index(tensor);
        const bool was_parameter =
            buffer >= 0 && model_.buffers()[buffer].origin == ModelBuffer::Origin::kParameter;
        if (!was_parameter && model_.parameter_index(tensor) < 0) return false;
        const Value* const value = before_writes(node.input(1));
        if (value->node()->kind() != prim::GetAttr || value->node()->s(attr::name) != name)
            return false;
        const auto* read = object_of(value->node()->input(0));
        return read != nullptr && read->get() == owner->get();
    }

    void drop_augmented() {
        for_each_node(*graph_.block(), [this](Node& node) {
            if (node.kind() == prim::SetAttr && is_augmented(node)) node.destroy();
        });
    }

    std::string path_of(const Object* object, const std::string& name) const {
        const std::string& prefix = paths_.at(object);
        return prefix.empty() ? name : prefix + "." + name;
    }

    void lift_block(Block& block, bool nested) {
        for (auto it = block.nodes().begin(); it != block.nodes().end();) {
            Node* node = *it++;
            if (node->kind() == prim::GetAttr) {
                lift_read(node);  // may destroy NODE, as lift_write() may
            } else if (node->kind() == prim::SetAttr) {
                lift_write(node, nested);
            } else {
                for (Block* inner : node->blocks()) lift_block(*inner, true);
            }
        }
    }

    void lift_read(Node* node) {
        const auto* owner = object_of(node->input(0));
        if (owner == nullptr) return;
        const std::string& name = node->s(attr::name);
        const IValue value = (*owner)->getAttr(name);
        if (value.isObject()) return;
        Value* replacement = nullptr;
        if (written_.count({owner->get(), name}) > 0) {
            if (!lifts_writes_) return;
            replacement = state(*owner, name, node->output()->type());
        } else {
            WithInsertPoint here(node);
            replacement = materialize(value, node->output()->type());
        }
        if (replacement == nullptr) return;
        node->output()->replaceAllUsesWith(replacement);
        node->destroy();
    }

    void lift_write(Node* node, bool nested) {
        if (!lifts_writes_) return;
        const auto* owner = object_of(node->input(0));
        if (owner == nullptr) return;
        const std::string name = node->s(attr::name);
        if (nested)
            fail(ExitCode::kInput,
                 "{}: attribute `{}` is written inside a loop or a branch, which is not supported; "
                 "return the value, or write it at the top level of forward",
                 describe_node(*node), path_of(owner->get(), name));
        require_alone(*node, *owner, name);
        state(*owner, name, node->input(1)->type());
        current_[{owner->get(), name}] = node->input(1);
        node->destroy();
    }

    // Refuses a new value for attribute NAME of OWNER if other attributes share the memory of the
    // old value: in PyTorch they would keep the old value, but here they would change too.
    void require_alone(const Node& node, const c10::intrusive_ptr<Object>& owner,
                       const std::string& name) const {
        const IValue value = owner->getAttr(name);
        if (!value.isTensor() || !value.toTensor().defined() || value.toTensor().numel() == 0)
            return;
        const void* const memory = value.toTensor().storage().data();
        std::set<const Object*> seen;
        std::string other;
        const std::function<void(const Object&, const std::string&)> look =
            [&](const Object& object, const std::string& path) {
                if (!seen.insert(&object).second) return;
                for (size_t i = 0; i < object.slots().size(); ++i) {
                    const IValue& slot = object.getSlot(i);
                    const std::string attribute = object.type()->getAttributeName(i);
                    if (slot.isObject()) look(slot.toObjectRef(), path + attribute + ".");
                    const bool is_it = &object == owner.get() && attribute == name;
                    if (!is_it && slot.isTensor() && slot.toTensor().has_storage() &&
                        slot.toTensor().storage().data() == memory)
                        other = path + attribute;
                }
            };
        look(*root_, "");
        if (other.empty()) return;
        fail(ExitCode::kInput,
             "{}: forward assigns a new tensor to attribute `{}`, but `{}` shares the memory of "
             "the old tensor; write it in place (`{}.copy_(...)`), or give the two tensors "
             "separate memory",
             describe_node(node), path_of(owner.get(), name), other, name);
    }

    Value* state(const c10::intrusive_ptr<Object>& owner, const std::string& name,
                 const c10::TypePtr& type) {
        const AttributeKey key{owner.get(), name};
        const auto found = current_.find(key);
        if (found != current_.end()) return found->second;
        Value* input = graph_.insertInput(1 + lowered_.arguments.size() + lowered_.states.size());
        input->setType(type);
        lowered_.states.push_back({path_of(owner.get(), name), owner, name});
        return current_[key] = input;
    }

    Value* tensor_input(const at::Tensor& tensor) {
        const int parameter = model_.parameter_index(tensor);
        const int buffer = parameter < 0 ? model_.buffer_index(tensor) : -1;
        if (parameter < 0 && buffer < 0) return nullptr;
        auto& inputs = parameter >= 0 ? parameter_inputs_ : buffer_inputs_;
        const int index = parameter >= 0 ? parameter : buffer;
        const auto found = inputs.find(index);
        if (found != inputs.end()) return found->second;
        const size_t before_buffers =
            1 + lowered_.arguments.size() + lowered_.states.size() + lowered_.parameters.size();
        Value* input = graph_.insertInput(
            parameter >= 0 ? before_buffers : before_buffers + lowered_.buffers.size());
        input->setType(c10::TensorType::get());
        (parameter >= 0 ? lowered_.parameters : lowered_.buffers).push_back(index);
        return inputs[index] = input;
    }

    // Adds nodes to the graph, at the insert point, that compute VIEW from the tensor whose memory
    // it shares. Returns their result.
    Value* view_input(const ModelView& view) {
        Value* owner = tensor_input(view.owner);
        if (view.is_detached && view.owner.requires_grad())
            owner = graph_.insert(aten::detach, {owner});
        return view.view.insert(graph_, owner);
    }

    // Returns the constant that stands for the attribute TENSOR. All reads of TENSOR get the same
    // constant, because a node may write TENSOR in place through one of the reads.
    Value* constant_of(const at::Tensor& tensor) {
        const auto [found, fresh] = constants_.try_emplace(tensor.unsafeGetTensorImpl(), nullptr);
        if (!fresh) return found->second;
        const WithInsertPoint at_start(*graph_.nodes().begin());
        return found->second =
                   torch::jit::tryInsertConstant(graph_, tensor.detach()).value_or(nullptr);
    }

    // Adds an attribute's VALUE to the graph at the insert point, and returns it as a value of the
    // graph. Returns null if the attribute can be reached only through the module.
    Value* materialize(const IValue& value, const c10::TypePtr& type) {
        if (value.isTensor() && value.toTensor().defined()) {
            if (Value* input = tensor_input(value.toTensor())) return input;
            if (const ModelView* view = model_.view_of(value.toTensor())) return view_input(*view);
            // A tensor that is neither a parameter nor a buffer becomes a constant without a
            // gradient.
            return constant_of(value.toTensor());
        }
        if (!holds_tensor(value))
            return torch::jit::tryInsertConstant(graph_, value).value_or(nullptr);
        if (value.isList() || value.isTuple()) return materialize_sequence(value, type);
        return nullptr;
    }

    Value* materialize_sequence(const IValue& value, const c10::TypePtr& type) {
        std::vector<Value*> elements;
        const auto element_type = [&](size_t i) {
            return value.isList() ? type->expectRef<c10::ListType>().getElementType()
                                  : type->containedType(i);
        };
        const c10::ArrayRef<IValue> items =
            value.isList() ? value.toListRef()
                           : c10::ArrayRef<IValue>(value.toTupleRef().elements().asArrayRef());
        for (size_t i = 0; i < items.size(); ++i) {
            elements.push_back(materialize(items[i], element_type(i)));
            if (elements.back() == nullptr) return nullptr;
        }
        Node* made = value.isList() ? graph_.createList(element_type(0), elements)
                                    : graph_.createTuple(elements);
        graph_.insertNode(made);
        made->output()->setType(type);
        return made->output();
    }

    void settle_module() {
        Value* self = graph_.inputs()[0];
        lowered_.takes_module = self->hasUses();
        if (!lowered_.takes_module) {
            graph_.eraseInput(0);
            return;
        }
        for (const auto& use : self->uses()) lowered_.opaque_node = describe_node(*use.user);
        if (!model_.views().empty())
            fail(ExitCode::kInput,
                 "{} takes a whole module as an argument, but in this module `{}` shares memory "
                 "with another tensor of a different shape; call a method of a concrete module "
                 "class instead, or give the two tensors separate memory",
                 lowered_.opaque_node, model_.views().front().name);
    }

    // Refuses writes to tensors that overlapped other tensors in the archive and are not views of
    // them. Here they have separate memory, so a write would not reach the other tensors.
    void refuse_writes_to_loose() const {
        const auto refuse = [](const std::string& name) {
            fail(ExitCode::kInput,
                 "forward writes `{}`, which overlaps another tensor in memory, but the two are "
                 "not views of one buffer; give them separate memory before you save the model "
                 "(`.clone()`), or make both views of one buffer",
                 name);
        };
        const bool any = std::ranges::any_of(model_.parameters(), &ModelParameter::is_loose) ||
                         std::ranges::any_of(model_.buffers(), &ModelBuffer::is_loose);
        if (!any) return;
        const std::set<const Value*> written = find_written_values(graph_);
        const auto check = [&](const auto& items, const std::vector<int>& indices, size_t first) {
            for (size_t i = 0; i < indices.size(); ++i)
                if (items[indices[i]].is_loose &&
                    (lowered_.takes_module || written.count(graph_.inputs()[first + i]) > 0))
                    refuse(items[indices[i]].name);
        };
        check(model_.parameters(), lowered_.parameters, lowered_.first_parameter());
        check(model_.buffers(), lowered_.buffers, lowered_.first_buffer());
    }

    const Model& model_;
    LoweredGraph& lowered_;
    Graph& graph_;
    c10::intrusive_ptr<Object> root_;
    std::map<const Value*, c10::intrusive_ptr<Object>> objects_;
    std::map<const Object*, std::string> paths_;
    std::set<AttributeKey> written_;
    bool lifts_writes_ = false;
    std::map<AttributeKey, Value*> current_;
    std::map<const c10::TensorImpl*, Value*> constants_;
    std::map<int, Value*> parameter_inputs_;
    std::map<int, Value*> buffer_inputs_;
};

void drop_unused(LoweredGraph& lowered, size_t first, std::vector<int>& owners) {
    for (size_t i = owners.size(); i-- > 0;) {
        if (lowered.graph->inputs()[first + i]->hasUses()) continue;
        lowered.graph->eraseInput(first + i);
        owners.erase(owners.begin() + static_cast<std::ptrdiff_t>(i));
    }
}

}  // namespace

void lift_attributes(Model& model, LoweredGraph& lowered, const std::function<void()>& simplify) {
    Lifter(model, lowered).run(model.module()._ivalue(), simplify);
}

void drop_unused_inputs(LoweredGraph& lowered) {
    drop_unused(lowered, lowered.first_buffer(), lowered.buffers);
    drop_unused(lowered, lowered.first_parameter(), lowered.parameters);
    if (!lowered.takes_module || lowered.graph->inputs()[0]->hasUses()) return;
    lowered.graph->eraseInput(0);
    lowered.takes_module = false;
    lowered.opaque_node.clear();
}

}  // namespace dslaunch::graph

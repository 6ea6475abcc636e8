#include "graph/archive/forward_of_program.h"

#include <fmt/core.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/schema_matching.h>
#include <torch/csrc/jit/ir/constants.h>

#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/text/torch_reason.h"
#include "graph/archive/program_names.h"
#include "graph/archive/program_places.h"
#include "graph/archive/program_values.h"
#include "graph/archive/python_operators.h"
#include "graph/nodes/detached_operands.h"
#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

using c10::TypeKind;
using storage::ExportedArgument;
using storage::ExportedGraph;
using storage::ExportedNode;
using storage::ExportedProgram;
using storage::ExportedValue;

namespace {

constexpr std::string_view kOperators = "torch.ops.";
constexpr std::string_view kHigherOrder = "torch.ops.higher_order.";

// The nodes that depend on the module's train mode. They are added at the graph's insert point.
// SELF: the graph's input for the module.
class TrainMode {
  public:
    TrainMode(Graph& graph, Value* self) : graph_(graph), self_(self) {}

    // Returns true in training.
    Value* flag() { return graph_.insertGetAttr(self_, "training"); }

    // Adds a block at the insert point that runs only in training.
    Block* block() {
        Node* const branch = graph_.insertNode(graph_.create(prim::If, {flag()}, 0));
        Block* const trains = branch->addBlock();
        branch->addBlock();
        return trains;
    }

    // Returns the number TRAINS in training and EVALUATES in evaluation.
    Value* choice(const IValue& trains, const IValue& evaluates) {
        Node* const branch = graph_.insertNode(graph_.create(prim::If, {flag()}, 1));
        for (const IValue& value : {trains, evaluates}) {
            const WithInsertPoint inside(branch->addBlock());
            branch->blocks().back()->registerOutput(graph_.insertConstant(value));
        }
        branch->output()->setType(c10::FloatType::get());
        return branch->output();
    }

  private:
    Graph& graph_;
    Value* self_;
};

class ForwardBuilder {
  public:
    ForwardBuilder(const ExportedProgram& program, const Module& module,
                   const std::map<std::string, at::Tensor>& constants)
        : program_(program),
          module_(module),
          graph_(std::make_shared<Graph>()),
          self_(graph_->addInput("self")),
          train_mode_(*graph_, self_),
          names_(*graph_, self_, places_) {
        self_->setType(module_.type());
        names_.add_inputs(program_, constants);
    }

    ForwardOfProgram build() {
        emit_nodes(program_.graph);
        for (const auto& [buffer, value] : program_.mutated_buffers) write_buffer(buffer, value);
        graph_->registerOutput(output());
        graph_->lint();
        return {graph_, fixed_to_evaluation_};
    }

  private:
    // ---- nodes ----

    void emit_nodes(const ExportedGraph& graph) {
        for (const ExportedNode& node : graph.nodes) {
            const ExportedNode* const outer = places_.enter(&node);
            try {
                const torch::jit::WithCurrentScope scope(*graph_, places_.scope_of(node));
                emit(node);
            } catch (const Error&) {
                throw;
            } catch (const std::exception& error) {
                places_.refuse(torch_reason(error));
            }
            places_.enter(outer);
        }
    }

    void emit(const ExportedNode& node) {
        const std::string_view target = node.target;
        if (is_assertion(target)) return;
        if (const char* size = size_operator(target)) return give(node, insert(size, node));
        if (const char* python = python_operator(target)) return give(node, insert(python, node));
        if (target.starts_with(kHigherOrder)) return emit_higher_order(node);
        if (auto* known = function_of_python_operator(*module_.type()->compilation_unit(), target))
            return emit_call(node, *known);
        if (target.starts_with(kOperators)) return emit_operator(node);
        places_.refuse(
            "it is a Python function, which cannot run here; export the model with "
            "torch.export.export(…, strict=False), or write it with torch operators");
    }

    // Inserts OPERATION with NODE's arguments, which are matched as in scripts, with implicit
    // conversions.
    Value* insert(const char* operation, const ExportedNode& node) {
        std::vector<NamedValue> arguments;
        for (const ExportedArgument& input : node.inputs)
            arguments.emplace_back(names_.materialize(input.value));
        Value* result = graph_->insert(Symbol::fromQualString(operation), arguments, {},
                                       ProgramPlaces::range_of(node));
        result->node()->setScope(places_.scope_of(node));
        return result;
    }

    void emit_call(const ExportedNode& node, Function& known) {
        std::vector<Value*> arguments;
        for (const ExportedArgument& input : node.inputs)
            arguments.push_back(names_.materialize(input.value));
        const size_t count = known.getSchema().arguments().size();
        if (arguments.size() != count)
            places_.refuse(
                fmt::format("it has {} arguments, but {} are expected", arguments.size(), count));
        Value* const result = graph_->insertFunctionCall(
            &known, {std::move(arguments), {at::TensorType::get()}, {}, known.name()});
        result->node()->setSourceRange(ProgramPlaces::range_of(node));
        result->node()->setScope(places_.scope_of(node));
        give(node, result);
    }

    void give(const ExportedNode& node, Value* result) {
        if (node.outputs.empty()) return;
        if (node.outputs.size() != 1)
            places_.refuse("it returns several values, but one is expected");
        names_.bind(node.outputs[0], result);
    }

    // ---- operators of the dispatcher ----

    Operation operation_of(const ExportedNode& node) const {
        const std::optional<Operation> operation =
            torch_operation(std::string_view(node.target).substr(kOperators.size()));
        if (!operation)
            places_.refuse(
                "LibTorch has no such operator; name the C++ library that contains it with "
                "--op-library, or decompose it with program.run_decompositions()");
        return *operation;
    }

    static const ExportedArgument* argument_named(const ExportedNode& node,
                                                  const std::string& name) {
        for (const ExportedArgument& input : node.inputs)
            if (input.name == name) return &input;
        return nullptr;
    }

    void emit_operator(const ExportedNode& node) {
        const Operation operation = operation_of(node);
        check_names(node, *operation.schema);
        const std::string counter = counter_of(node, operation);
        if (!counter.empty()) return emit_counter(node, operation, counter);
        give_returns(node, operation, call(node, operation));
    }

    void check_names(const ExportedNode& node, const c10::FunctionSchema& schema) const {
        for (const ExportedArgument& input : node.inputs)
            if (!schema.argumentIndexWithName(input.name))
                places_.refuse(fmt::format("its argument `{}` does not exist in this LibTorch: {}",
                                           printable(input.name), toString(schema)));
    }

    Node* call(const ExportedNode& node, const Operation& operation) {
        std::vector<Value*> values;
        bool scalar_for_tensor = false;
        for (const c10::Argument& parameter : operation.schema->arguments()) {
            values.push_back(argument(node, operation, parameter));
            const TypeKind kind = values.back()->type()->kind();
            const bool is_number = kind == TypeKind::IntType || kind == TypeKind::FloatType ||
                                   kind == TypeKind::BoolType;
            scalar_for_tensor =
                scalar_for_tensor || (is_number && wants(parameter.type(), TypeKind::TensorType));
        }
        if (scalar_for_tensor) return call_by_matching(node, operation, values);
        Node* made = graph_->create(Symbol::fromQualString(operation.name), values,
                                    operation.schema->returns().size());
        for (size_t i = 0; i < made->outputs().size(); ++i)
            made->outputs()[i]->setType(operation.schema->returns()[i].type());
        made->setSourceRange(ProgramPlaces::range_of(node));
        graph_->insertNode(made);
        if (made->maybeSchema() == nullptr) places_.refuse(why_no_match(operation, values));
        return made;
    }

    // Python may pass a number for an argument that the schema declares as a tensor. The call then
    // means another overload, which takes numbers.
    Node* call_by_matching(const ExportedNode& node, const Operation& operation,
                           const std::vector<Value*>& values) {
        std::vector<NamedValue> positional, named;
        const auto& parameters = operation.schema->arguments();
        for (size_t i = 0; i < values.size(); ++i) {
            if (argument_named(node, parameters[i].name()) == nullptr) continue;
            if (parameters[i].kwarg_only()) {
                named.emplace_back(parameters[i].name(), values[i]);
            } else {
                positional.emplace_back(values[i]);
            }
        }
        const std::string name = put_tensor_first(*graph_, operation.name, positional, named);
        return graph_
            ->insert(Symbol::fromQualString(name), positional, named, ProgramPlaces::range_of(node))
            ->node();
    }

    Value* argument(const ExportedNode& node, const Operation& operation,
                    const c10::Argument& parameter) {
        const ExportedArgument* const given = argument_named(node, parameter.name());
        if (given == nullptr) {
            if (!parameter.default_value())
                places_.refuse(fmt::format("its argument `{}` is missing", parameter.name()));
            return names_.constant(*parameter.default_value());
        }
        const std::optional<IValue> fixed = constant_of(given->value);
        if (!fixed) {
            const c10::TypePtr element = element_of(parameter.type());
            return names_.materialize(
                given->value, element != nullptr && element->kind() == TypeKind::OptionalType);
        }
        const char* const flag = train_flag(operation.name);
        if (flag != nullptr && parameter.name() == flag && fixed->isBool()) {
            if (fixed->toBool()) return train_mode_.flag();
            ++fixed_to_evaluation_;
        }
        const IValue value = constant_as(*fixed, parameter);
        const char* const probability = train_probability(operation.name);
        if (probability != nullptr && parameter.name() == probability && value.isDouble() &&
            value.toDouble() > 0)
            return train_mode_.choice(value, 0.0);
        return names_.constant(value);
    }

    // Returns the name of the counter of training steps (num_batches_tracked) that NODE increments,
    // as batch normalization does in train mode only. Empty if NODE increments no such counter.
    std::string counter_of(const ExportedNode& node, const Operation& operation) const {
        if (operation.name != "aten::add_" || node.inputs.empty()) return {};
        const auto held = names_.held().find(name_of(node.inputs[0].value));
        const bool counts =
            held != names_.held().end() && (held->second == "num_batches_tracked" ||
                                            held->second.ends_with(".num_batches_tracked"));
        return counts ? held->first : "";
    }

    void emit_counter(const ExportedNode& node, const Operation& operation,
                      const std::string& counter) {
        {
            const WithInsertPoint inside(train_mode_.block());
            call(node, operation);
        }
        for (const ExportedValue& output : node.outputs)
            names_.set(name_of(output), names_.find(counter));
    }

    void give_returns(const ExportedNode& node, const Operation& operation, Node* made) {
        const size_t count = made->outputs().size();
        if (node.outputs.size() == count) {
            for (size_t i = 0; i < count; ++i) names_.bind(node.outputs[i], made->outputs()[i]);
            return;
        }
        // If an operator returns several tensors, the program may list them as a single output.
        const auto* list = node.outputs.size() == 1
                               ? std::get_if<std::vector<storage::TensorName>>(&node.outputs[0])
                               : nullptr;
        if (list != nullptr && list->size() == count) {
            for (size_t i = 0; i < count; ++i) names_.set((*list)[i].name, made->outputs()[i]);
            return;
        }
        if (node.outputs.empty()) return;
        places_.refuse(fmt::format("it returns {} values, but {} returns {}", node.outputs.size(),
                                   operation.name, count));
    }

    // ---- graphs inside the graph ----

    void emit_higher_order(const ExportedNode& node) {
        const std::string_view name = std::string_view(node.target).substr(kHigherOrder.size());
        if (name == "wrap_with_set_grad_enabled") return emit_grad_mode(node);
        if (name == "wrap_with_autocast") return emit_autocast(node);
        if (name == "cond") return emit_cond(node);
        places_.refuse("this kind of control flow cannot be trained; write the model without it");
    }

    [[noreturn]] void refuse_arguments() const {
        places_.refuse("its arguments are not supported by this version");
    }

    [[nodiscard]] const ExportedGraph& graph_in(const ExportedNode& node, size_t at) const {
        const auto* const held = at < node.inputs.size()
                                     ? std::get_if<storage::SubGraph>(&node.inputs[at].value)
                                     : nullptr;
        if (held == nullptr) refuse_arguments();
        return *held->graph;
    }

    // Inserts the nodes of GRAPH here with OPERANDS as its inputs, and returns its outputs. Nodes
    // outside of GRAPH cannot use the names of GRAPH's values.
    std::vector<Value*> inlined(const ExportedGraph& graph, const std::vector<Value*>& operands) {
        if (graph.inputs.size() != operands.size())
            places_.refuse(fmt::format("its graph takes {} values, but is given {}",
                                       graph.inputs.size(), operands.size()));
        ProgramNames::ByName outer = names_.values();
        for (size_t i = 0; i < operands.size(); ++i) {
            const std::string name = name_of(graph.inputs[i]);
            if (!name.empty()) names_.set(name, operands[i]);
        }
        emit_nodes(graph);
        std::vector<Value*> outputs;
        for (const ExportedValue& output : graph.outputs)
            outputs.push_back(names_.materialize(output));
        names_.restore(std::move(outer));
        return outputs;
    }

    bool flag_at(const ExportedNode& node, size_t at) const {
        const bool* flag =
            at < node.inputs.size() ? std::get_if<bool>(&node.inputs[at].value) : nullptr;
        if (flag == nullptr) refuse_arguments();
        return *flag;
    }

    // Emits a block that may disable gradients. If the block disables them, its operators run on
    // detached inputs.
    void emit_grad_mode(const ExportedNode& node) {
        const ExportedGraph& body = graph_in(node, 1);
        const bool enabled = flag_at(node, 0);
        std::vector<Value*> values = names_.operands(node, 2);
        DetachedOperands without;
        if (!enabled) without.detach(values);
        std::vector<Value*> outputs = inlined(body, values);
        for (Value*& output : outputs) output = without.given_back(output);
        names_.bind_all(node, outputs);
    }

    // Emits the graph of an autocast block. NODE's inputs: (device_type, dtype, enabled,
    // cache_enabled, graph, operands…)
    void emit_autocast(const ExportedNode& node) {
        const ExportedGraph& body = graph_in(node, 4);
        if (flag_at(node, 2))
            places_.refuse(
                "the model turns on autocast itself; export it without autocast, and set \"bf16\" "
                "or \"fp16\" in ds_config.json");
        names_.bind_all(node, inlined(body, names_.operands(node, 5)));
    }

    // Emits a branch. NODE's inputs: (predicate, graph if true, graph if false, operands)
    void emit_cond(const ExportedNode& node) {
        const ExportedGraph* const branches[] = {&graph_in(node, 1), &graph_in(node, 2)};
        Value* predicate = names_.materialize(node.inputs[0].value);
        if (predicate->type()->kind() != TypeKind::BoolType)
            predicate = graph_->insert(aten::Bool, {predicate});
        const std::vector<Value*> values = names_.operands(node, 3);
        Node* choice = graph_->insertNode(graph_->create(prim::If, {predicate}, 0));
        std::vector<c10::TypePtr> types;
        for (const ExportedGraph* const branch : branches) {
            Block* block = choice->addBlock();
            const WithInsertPoint inside(block);
            types.clear();
            for (Value* output : inlined(*branch, values)) {
                block->registerOutput(output);
                types.push_back(output->type());
            }
        }
        std::vector<Value*> outputs;
        for (const c10::TypePtr& type : types)
            outputs.push_back(choice->addOutput()->setType(type));
        names_.bind_all(node, outputs);
    }

    // ---- outputs ----

    // Writes VALUE to BUFFER: a program without in-place operators returns a buffer's new value.
    void write_buffer(const std::string& buffer, const std::string& value) {
        const auto held = names_.value_of(buffer);
        if (!held)
            fail(ExitCode::kInput, "the buffer `{}` is written, but is not an input of the graph",
                 printable(buffer));
        const bool counts = buffer.ends_with("num_batches_tracked");
        const WithInsertPoint inside(counts ? train_mode_.block() : graph_->block());
        graph_->insert(aten::copy_, {names_.find(*held), names_.find(value)});
    }

    // Returns forward's output: the tensors of the program's output, without its other values. The
    // output is a dict if the program returns a dict.
    Value* output() {
        std::vector<Value*> keys, parts;
        for (const storage::ExportedOutput& part : program_.outputs) {
            const std::string name = name_of(part.value);
            if (name.empty() || !std::holds_alternative<storage::TensorName>(part.value)) continue;
            parts.push_back(names_.find(name));
            if (program_.is_dict) keys.push_back(graph_->insertConstant(part.key));
        }
        if (parts.empty()) fail(ExitCode::kInput, "forward returns no tensor");
        if (program_.is_dict)
            return graph_
                ->insertNode(
                    graph_->createDict(c10::StringType::get(), c10::TensorType::get(), keys, parts))
                ->output();
        if (parts.size() == 1) return parts[0];
        return graph_->insertNode(graph_->createTuple(parts))->output();
    }

    const ExportedProgram& program_;
    const Module& module_;
    std::shared_ptr<Graph> graph_;
    Value* self_;
    TrainMode train_mode_;
    ProgramPlaces places_;
    ProgramNames names_;
    int fixed_to_evaluation_ = 0;
};

}  // namespace

ForwardOfProgram forward_of_program(const ExportedProgram& program, const Module& module,
                                    const std::map<std::string, at::Tensor>& constants) {
    return ForwardBuilder(program, module, constants).build();
}

}  // namespace dslaunch::graph

#include "graph/archive/forward_of_program.h"

#include <fmt/core.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/schema_matching.h>
#include <torch/csrc/jit/frontend/source_range.h>
#include <torch/csrc/jit/ir/constants.h>

#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/text/torch_reason.h"
#include "graph/archive/program_values.h"
#include "graph/archive/python_operators.h"
#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

using c10::TypeKind;
using storage::ExportedArgument;
using storage::ExportedGraph;
using storage::ExportedInput;
using storage::ExportedNode;
using storage::ExportedProgram;
using storage::ExportedValue;

namespace {

constexpr std::string_view kOperators = "torch.ops.";
constexpr std::string_view kHigherOrder = "torch.ops.higher_order.";

class ForwardBuilder {
  public:
    ForwardBuilder(const ExportedProgram& program, const Module& module,
                   const std::map<std::string, at::Tensor>& constants)
        : program_(program),
          module_(module),
          constants_(constants),
          graph_(std::make_shared<Graph>()),
          root_scope_(c10::make_intrusive<torch::jit::Scope>()) {}

    ForwardOfProgram build() {
        self_ = graph_->addInput("self");
        self_->setType(module_.type());
        read_inputs();
        emit_nodes(program_.graph);
        for (const auto& [buffer, value] : program_.mutated_buffers) write_buffer(buffer, value);
        graph_->registerOutput(output());
        graph_->lint();
        return {graph_, fixed_to_evaluation_};
    }

  private:
    // ---- values ----

    void read_inputs() {
        for (const ExportedInput& input : program_.inputs) {
            switch (input.kind) {
                case ExportedInput::Kind::kUser:
                    read_argument(input);
                    break;
                case ExportedInput::Kind::kParameter:
                case ExportedInput::Kind::kBuffer:
                    held_[input.value] = input.target;
                    break;
                case ExportedInput::Kind::kConstant: {
                    const auto found = constants_.find(input.target);
                    if (found == constants_.end())
                        fail(ExitCode::kInput, "the constant `{}` is not in the archive",
                             printable(input.target));
                    values_[input.value] = graph_->insertConstant(found->second);
                    break;
                }
            }
        }
        for (const auto& [value, target] : held_) {
            Value* owner = self_;
            for (const std::string& part : split(target, '.'))
                owner = graph_->insertGetAttr(owner, part);
            values_[value] = owner;
        }
    }

    void read_argument(const ExportedInput& input) {
        if (input.value.empty()) return;  // the graph does not use what it was fixed to
        if (input.fixed) {
            values_[input.value] = constant(*input.fixed);
            return;
        }
        if (!input.is_tensor)
            fail(ExitCode::kInput,
                 "forward's argument `{}` is a number that may change between calls, which data "
                 "do not supply; export the model with a tensor, or with the number fixed",
                 printable(input.value));
        values_[input.value] = graph_->addInput(input.value);
    }

    Value* find(const std::string& name) const {
        const auto found = values_.find(name);
        if (found == values_.end())
            fail(ExitCode::kInput, "the value `{}` is used before any node makes it",
                 printable(name));
        return found->second;
    }

    Value* none() { return graph_->insertNode(graph_->createNone())->output(); }
    Value* constant(const IValue& value) {
        return value.isNone() ? none() : graph_->insertConstant(value);
    }
    Value* constant(const ExportedValue& value) {
        return constant(constant_of(value).value_or(IValue()));
    }

    template <typename Symbols>
    Value* list_of_numbers(const Symbols& symbols, const c10::TypePtr& element) {
        std::vector<Value*> values;
        for (const auto& symbol : symbols)
            values.push_back(symbol.name.empty() ? graph_->insertConstant(symbol.number)
                                                 : find(symbol.name));
        return graph_->insertNode(graph_->createList(element, values))->output();
    }

    Value* list_of_tensors(const std::vector<storage::TensorName>& names, bool optional) {
        std::vector<Value*> values;
        for (const storage::TensorName& tensor : names)
            values.push_back(tensor.name.empty() ? none() : find(tensor.name));
        const c10::TypePtr element =
            optional ? c10::TypePtr(c10::OptionalType::ofTensor()) : c10::TensorType::get();
        return graph_->insertNode(graph_->createList(element, values))->output();
    }

    // VALUE as an operator's argument. OPTIONAL: a list of tensors may hold None.
    Value* materialize(const ExportedValue& value, bool optional = false) {
        if (const std::optional<IValue> fixed = constant_of(value)) return constant(*fixed);
        if (const std::string name = name_of(value); !name.empty()) return find(name);
        if (const auto* sizes = std::get_if<std::vector<storage::SymInt>>(&value))
            return list_of_numbers(*sizes, c10::IntType::get());
        if (const auto* numbers = std::get_if<std::vector<storage::SymFloat>>(&value))
            return list_of_numbers(*numbers, c10::FloatType::get());
        if (const auto* tensors = std::get_if<std::vector<storage::TensorName>>(&value))
            return list_of_tensors(*tensors, optional);
        refuse("it has a graph as an argument, which this operator cannot take here");
    }

    // ---- nodes ----

    [[noreturn]] void refuse(const std::string& why) const {
        if (node_ == nullptr) fail(ExitCode::kInput, "{}", why);
        std::string where = node_->module_path.empty() ? "" : " in " + node_->module_path;
        if (!node_->source.empty()) where += fmt::format(" ({})", node_->source);
        fail(ExitCode::kInput, "{}{}: {}", printable(node_->target), printable(where), why);
    }

    void emit_nodes(const ExportedGraph& graph) {
        for (const ExportedNode& node : graph.nodes) {
            const ExportedNode* const outer = std::exchange(node_, &node);
            try {
                const torch::jit::WithCurrentScope scope(*graph_, scope_of(node));
                emit(node);
            } catch (const Error&) {
                throw;
            } catch (const std::exception& error) {
                refuse(torch_reason(error));
            }
            node_ = outer;
        }
    }

    // Nodes of one module share a scope, by which messages name it.
    torch::jit::ScopePtr scope_of(const ExportedNode& node) {
        if (node.module_path.empty()) return root_scope_;
        auto& scope = scopes_[node.module_path];
        if (!scope) scope = root_scope_->push(Symbol::scope(node.module_path));
        return scope;
    }

    static torch::jit::SourceRange range_of(const ExportedNode& node) {
        const size_t colon = node.source.rfind(':');
        if (colon == std::string::npos) return {};
        const int line = std::max(1, std::atoi(node.source.c_str() + colon + 1));
        return {std::make_shared<torch::jit::Source>("\n", node.source.substr(0, colon),
                                                     static_cast<size_t>(line - 1)),
                0, 1};
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
        refuse(
            "it is a function of Python, which cannot run here; export the model with "
            "torch.export.export(…, strict=False), or write it with operators of torch");
    }

    // Arguments are matched as in scripts, with implicit conversions.
    Value* insert(const char* operation, const ExportedNode& node) {
        std::vector<NamedValue> arguments;
        for (const ExportedArgument& input : node.inputs)
            arguments.emplace_back(materialize(input.value));
        Value* result =
            graph_->insert(Symbol::fromQualString(operation), arguments, {}, range_of(node));
        result->node()->setScope(scope_of(node));
        return result;
    }

    void emit_call(const ExportedNode& node, Function& known) {
        std::vector<Value*> arguments;
        for (const ExportedArgument& input : node.inputs)
            arguments.push_back(materialize(input.value));
        const size_t count = known.getSchema().arguments().size();
        if (arguments.size() != count)
            refuse(fmt::format("it has {} arguments where {} are known", arguments.size(), count));
        Value* const result = graph_->insertFunctionCall(
            &known, {std::move(arguments), {at::TensorType::get()}, {}, known.name()});
        result->node()->setSourceRange(range_of(node));
        result->node()->setScope(scope_of(node));
        give(node, result);
    }

    void give(const ExportedNode& node, Value* result) {
        if (node.outputs.empty()) return;
        if (node.outputs.size() != 1) refuse("it gives several values where one is known");
        bind(node.outputs[0], result);
    }

    // Gives the value of the program that OUTPUT names, or the values that it lists.
    void bind(const ExportedValue& output, Value* result) {
        if (const auto* list = std::get_if<std::vector<storage::TensorName>>(&output)) {
            Node* unpacked = graph_->insertNode(graph_->createListUnpack(result, list->size()));
            for (size_t i = 0; i < list->size(); ++i)
                values_[(*list)[i].name] = unpacked->outputs()[i];
            return;
        }
        const std::string name = name_of(output);
        if (name.empty()) return;  // an output that the operator left out
        if (result->type()->kind() == TypeKind::NumberType)
            result = graph_->insert(
                std::holds_alternative<storage::SymFloat>(output) ? aten::Float : aten::Int,
                {result});
        values_[name] = result;
    }

    // ---- operators of the dispatcher ----

    Operation operation_of(const ExportedNode& node) const {
        const std::optional<Operation> operation =
            torch_operation(std::string_view(node.target).substr(kOperators.size()));
        if (!operation)
            refuse(
                "LibTorch has no such operator: name the library in C++ that has it with "
                "--op-library, or have it decomposed: program.run_decompositions()");
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
                refuse(fmt::format("its argument `{}` is not known to this LibTorch: {}",
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
        made->setSourceRange(range_of(node));
        graph_->insertNode(made);
        if (made->maybeSchema() == nullptr) refuse(why_no_match(operation, values));
        return made;
    }

    // Python passes numbers where tensors stand: the overload that takes numbers is the one meant.
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
        return graph_->insert(Symbol::fromQualString(name), positional, named, range_of(node))
            ->node();
    }

    Value* argument(const ExportedNode& node, const Operation& operation,
                    const c10::Argument& parameter) {
        const ExportedArgument* const given = argument_named(node, parameter.name());
        if (given == nullptr) {
            if (!parameter.default_value())
                refuse(fmt::format("its argument `{}` is missing", parameter.name()));
            return constant(*parameter.default_value());
        }
        const std::optional<IValue> fixed = constant_of(given->value);
        if (!fixed) {
            const c10::TypePtr element = element_of(parameter.type());
            return materialize(given->value,
                               element != nullptr && element->kind() == TypeKind::OptionalType);
        }
        const char* const flag = train_flag(operation.name);
        if (flag != nullptr && parameter.name() == flag && fixed->isBool()) {
            if (fixed->toBool()) return training();
            ++fixed_to_evaluation_;
        }
        const IValue value = constant_as(*fixed, parameter);
        const char* const probability = train_probability(operation.name);
        if (probability != nullptr && parameter.name() == probability && value.isDouble() &&
            value.toDouble() > 0)
            return in_training(value, 0.0);
        return constant(value);
    }

    Value* training() { return graph_->insertGetAttr(self_, "training"); }

    // A block at the insert point that runs in training alone.
    Block* training_block() {
        Node* choice = graph_->insertNode(graph_->create(prim::If, {training()}, 0));
        Block* const trains = choice->addBlock();
        choice->addBlock();
        return trains;
    }

    Value* in_training(const IValue& trains, const IValue& evaluates) {
        Node* choice = graph_->insertNode(graph_->create(prim::If, {training()}, 1));
        for (const IValue& value : {trains, evaluates}) {
            const WithInsertPoint inside(choice->addBlock());
            choice->blocks().back()->registerOutput(graph_->insertConstant(value));
        }
        choice->output()->setType(c10::FloatType::get());
        return choice->output();
    }

    // Returns the buffer whose training steps NODE counts, as batch normalization does in train
    // mode only; empty: none.
    std::string counter_of(const ExportedNode& node, const Operation& operation) const {
        if (operation.name != "aten::add_" || node.inputs.empty()) return {};
        const auto held = held_.find(name_of(node.inputs[0].value));
        const bool counts = held != held_.end() && (held->second == "num_batches_tracked" ||
                                                    held->second.ends_with(".num_batches_tracked"));
        return counts ? held->first : "";
    }

    void emit_counter(const ExportedNode& node, const Operation& operation,
                      const std::string& counter) {
        {
            const WithInsertPoint inside(training_block());
            call(node, operation);
        }
        for (const ExportedValue& output : node.outputs) values_[name_of(output)] = find(counter);
    }

    void give_returns(const ExportedNode& node, const Operation& operation, Node* made) {
        const size_t count = made->outputs().size();
        if (node.outputs.size() == count) {
            for (size_t i = 0; i < count; ++i) bind(node.outputs[i], made->outputs()[i]);
            return;
        }
        // An operator of several tensors may list them as one output.
        const auto* list = node.outputs.size() == 1
                               ? std::get_if<std::vector<storage::TensorName>>(&node.outputs[0])
                               : nullptr;
        if (list != nullptr && list->size() == count) {
            for (size_t i = 0; i < count; ++i) values_[(*list)[i].name] = made->outputs()[i];
            return;
        }
        if (node.outputs.empty()) return;
        refuse(fmt::format("it gives {} values, and {} gives {}", node.outputs.size(),
                           operation.name, count));
    }

    // ---- graphs inside the graph ----

    void emit_higher_order(const ExportedNode& node) {
        const std::string_view name = std::string_view(node.target).substr(kHigherOrder.size());
        if (name == "wrap_with_set_grad_enabled") return emit_grad_mode(node);
        if (name == "wrap_with_autocast") return emit_autocast(node);
        if (name == "cond") return emit_cond(node);
        refuse("control flow of this kind cannot be trained here; write the model without it");
    }

    [[noreturn]] void refuse_arguments() const {
        refuse("its arguments are not those that this version knows");
    }

    [[nodiscard]] const ExportedGraph& graph_in(const ExportedNode& node, size_t at) const {
        const auto* const held = at < node.inputs.size()
                                     ? std::get_if<storage::SubGraph>(&node.inputs[at].value)
                                     : nullptr;
        if (held == nullptr) refuse_arguments();
        return *held->graph;
    }

    // Returns the values that NODE hands to its graph: its inputs from FIRST on, lists taken apart.
    std::vector<Value*> operands(const ExportedNode& node, size_t first) {
        std::vector<Value*> values;
        for (size_t i = first; i < node.inputs.size(); ++i) {
            if (const auto* list =
                    std::get_if<std::vector<storage::TensorName>>(&node.inputs[i].value)) {
                for (const storage::TensorName& tensor : *list) values.push_back(find(tensor.name));
            } else {
                values.push_back(materialize(node.inputs[i].value));
            }
        }
        return values;
    }

    // Returns the outputs of GRAPH, whose nodes are put in here with OPERANDS as its inputs. Its
    // own names are forgotten afterwards.
    std::vector<Value*> inlined(const ExportedGraph& graph, const std::vector<Value*>& operands) {
        if (graph.inputs.size() != operands.size())
            refuse(fmt::format("its graph takes {} values and is given {}", graph.inputs.size(),
                               operands.size()));
        std::map<std::string, Value*> outer = values_;
        for (size_t i = 0; i < operands.size(); ++i) {
            const std::string name = name_of(graph.inputs[i]);
            if (!name.empty()) values_[name] = operands[i];
        }
        emit_nodes(graph);
        std::vector<Value*> outputs;
        for (const ExportedValue& output : graph.outputs) outputs.push_back(materialize(output));
        values_ = std::move(outer);
        return outputs;
    }

    void give_outputs(const ExportedNode& node, const std::vector<Value*>& outputs) {
        size_t next = 0;
        const auto take = [&](const std::string& name) {
            if (next >= outputs.size()) refuse("its graph gives fewer values than it does");
            if (!name.empty()) values_[name] = outputs[next];
            ++next;
        };
        for (const ExportedValue& output : node.outputs) {
            if (const auto* list = std::get_if<std::vector<storage::TensorName>>(&output)) {
                for (const storage::TensorName& tensor : *list) take(tensor.name);
            } else {
                take(name_of(output));
            }
        }
    }

    bool flag_at(const ExportedNode& node, size_t at) const {
        const bool* flag =
            at < node.inputs.size() ? std::get_if<bool>(&node.inputs[at].value) : nullptr;
        if (flag == nullptr) refuse_arguments();
        return *flag;
    }

    // Emits a block without gradients: the same operators run on detached inputs.
    void emit_grad_mode(const ExportedNode& node) {
        const ExportedGraph& body = graph_in(node, 1);
        const bool enabled = flag_at(node, 0);
        std::vector<Value*> values = operands(node, 2);
        DetachedOperands without;
        if (!enabled) without.detach(values);
        std::vector<Value*> outputs = inlined(body, values);
        for (Value*& output : outputs) output = without.given_back(output);
        give_outputs(node, outputs);
    }

    // (device_type, dtype, enabled, cache_enabled, graph, operands…)
    void emit_autocast(const ExportedNode& node) {
        const ExportedGraph& body = graph_in(node, 4);
        if (flag_at(node, 2))
            refuse(
                "the model switches autocast on itself; export it without, and set \"bf16\" or "
                "\"fp16\" in ds_config.json");
        give_outputs(node, inlined(body, operands(node, 5)));
    }

    // (predicate, graph if true, graph if false, operands)
    void emit_cond(const ExportedNode& node) {
        const ExportedGraph* const branches[] = {&graph_in(node, 1), &graph_in(node, 2)};
        Value* predicate = materialize(node.inputs[0].value);
        if (predicate->type()->kind() != TypeKind::BoolType)
            predicate = graph_->insert(aten::Bool, {predicate});
        const std::vector<Value*> values = operands(node, 3);
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
        give_outputs(node, outputs);
    }

    // ---- outputs ----

    // Writes a buffer's new value, which a program without in-place operators gives.
    void write_buffer(const std::string& buffer, const std::string& value) {
        const auto held = std::find_if(held_.begin(), held_.end(),
                                       [&](const auto& item) { return item.second == buffer; });
        if (held == held_.end())
            fail(ExitCode::kInput, "the buffer `{}` that is written is no input of the graph",
                 printable(buffer));
        const bool counts = buffer.ends_with("num_batches_tracked");
        const WithInsertPoint inside(counts ? training_block() : graph_->block());
        graph_->insert(aten::copy_, {find(held->first), find(value)});
    }

    // Forward's output: the tensors among its parts, under their names where it has names.
    Value* output() {
        std::vector<Value*> keys, parts;
        for (const storage::ExportedOutput& part : program_.outputs) {
            const std::string name = name_of(part.value);
            if (name.empty() || !std::holds_alternative<storage::TensorName>(part.value)) continue;
            parts.push_back(find(name));
            if (program_.is_dict) keys.push_back(graph_->insertConstant(part.key));
        }
        if (parts.empty()) fail(ExitCode::kInput, "forward gives no tensor");
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
    const std::map<std::string, at::Tensor>& constants_;
    std::shared_ptr<Graph> graph_;
    torch::jit::ScopePtr root_scope_;
    Value* self_ = nullptr;
    const ExportedNode* node_ = nullptr;       // the one that is being put in
    std::map<std::string, Value*> values_;     // by the program's names
    std::map<std::string, std::string> held_;  // parameters and buffers, their names in the module
    std::map<std::string, torch::jit::ScopePtr> scopes_;
    int fixed_to_evaluation_ = 0;
};

}  // namespace

ForwardOfProgram forward_of_program(const ExportedProgram& program, const Module& module,
                                    const std::map<std::string, at::Tensor>& constants) {
    return ForwardBuilder(program, module, constants).build();
}

}  // namespace dslaunch::graph

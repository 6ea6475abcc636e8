#include "graph/lower/distill.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/stack.h>
#include <ATen/ops/log_softmax.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;
using torch::jit::pop;
using torch::jit::Stack;

namespace {

constexpr const char* kTeacherPrefix = "teacher.";
constexpr const char* kKey = "dslaunch.distill.teacher";

// Settings of the teacher's loss.
struct Lesson {
    int64_t ignored = -100;
    double temperature = 1;
    bool sums = false;  // a sum over the targets, not their mean
};

void require_same_sizes(const at::Tensor& mine, const at::Tensor& theirs, const char* what) {
    if (mine.sizes() == theirs.sizes()) return;
    fail(ExitCode::kInput, "{}: the teacher has {} {}, but the model has {}", kKey, theirs.size(-1),
         what, mine.size(-1));
}

// Returns LABELS in one row: one target for each of ROWS. Throws Error{kInput} if the counts
// differ.
at::Tensor targets_of(const at::Tensor& labels, const at::Tensor& rows) {
    if (labels.is_floating_point())
        fail(ExitCode::kInput,
             "{}: the targets of the model's cross entropy are probabilities, which is not "
             "supported with a teacher; use targets that are numbers of classes",
             kKey);
    if (labels.numel() != rows.size(0))
        fail(ExitCode::kInput,
             "{}: the model has {} rows of outputs, but {} targets: the loss leaves out a part of "
             "the outputs; use dslaunch.distill.kind logits",
             kKey, rows.size(0), labels.numel());
    return labels.flatten();
}

// Returns LOGITS as [rows, classes]. Dimension 1 of LOGITS contains the classes; a single row may
// have only the dimension of the classes.
at::Tensor rows_of(const at::Tensor& logits) {
    if (logits.dim() == 1) return logits.unsqueeze(0);
    return logits.dim() == 2 ? logits : logits.movedim(1, -1).flatten(0, -2);
}

// Returns, for each row, 1 if its target counts and 0 otherwise. If LESSON takes a mean, divides
// the result by the number of targets that count.
at::Tensor weights_of(const at::Tensor& labels, const Lesson& lesson) {
    const at::Tensor counts = (labels != lesson.ignored).to(at::kFloat);
    return lesson.sums ? counts : counts / counts.sum().clamp_min(1);
}

struct Divergence : torch::autograd::Function<Divergence> {
    static Variable forward(AutogradContext* context, const Variable& rows,
                            const at::Tensor& teacher, const at::Tensor& labels,
                            const Lesson& lesson) {
        const at::Tensor weights = weights_of(labels, lesson).unsqueeze(1);
        context->save_for_backward({rows, teacher, weights});
        context->saved_data["temperature"] = lesson.temperature;
        const auto logs = [&](const at::Tensor& logits) {
            return at::log_softmax(logits.to(at::kFloat) / lesson.temperature, -1);
        };
        const at::Tensor theirs = logs(teacher);
        const at::Tensor off = (theirs.exp() * (theirs - logs(rows))).sum(-1, true);
        return (off * weights).sum() * (lesson.temperature * lesson.temperature);
    }

    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const variable_list saved = context->get_saved_variables();
        const double temperature = context->saved_data["temperature"].toDouble();
        const auto parts = [&](const at::Tensor& logits) {
            return (logits.to(at::kFloat) / temperature).softmax(-1);
        };
        const at::Tensor to_rows =
            (parts(saved[0]) - parts(saved[1])) * saved[2] * (gradients.front() * temperature);
        return {to_rows.to(saved[0].scalar_type()), {}, {}, {}};
    }
};

void distill_logits(Stack& stack) {
    Lesson lesson;
    lesson.sums = pop(stack).toBool();
    lesson.temperature = pop(stack).toDouble();
    lesson.ignored = pop(stack).toInt();
    const at::Tensor labels = pop(stack).toTensor();
    const at::Tensor teacher = pop(stack).toTensor();
    const at::Tensor logits = pop(stack).toTensor();
    const at::Tensor rows = rows_of(logits), answers = rows_of(teacher);
    require_same_sizes(rows, answers, "classes");
    stack.emplace_back(Divergence::apply(rows, answers, targets_of(labels, rows), lesson));
}

void distill_hidden(Stack& stack) {
    Lesson lesson;
    lesson.sums = pop(stack).toBool();
    lesson.ignored = pop(stack).toInt();
    const at::Tensor labels = pop(stack).toTensor();
    const at::Tensor theirs = pop(stack).toTensor();
    const at::Tensor mine = pop(stack).toTensor();
    const auto as_rows = [](const at::Tensor& values) {
        return values.to(at::kFloat).reshape({-1, values.size(-1)});
    };
    const at::Tensor rows = as_rows(mine), answers = as_rows(theirs);
    require_same_sizes(rows, answers, "inputs of its output layer");
    const at::Tensor off = (rows - answers).square().mean(-1);
    stack.emplace_back((off * weights_of(targets_of(labels, off), lesson)).sum());
}

void register_lessons() {
    using torch::jit::Operator;
    constexpr auto kFromSchema = c10::AliasAnalysisKind::FROM_SCHEMA;
    static const torch::jit::RegisterOperators operators({
        Operator(
            "dslaunch::distill_logits(Tensor logits, Tensor teacher, Tensor labels, int ignored, "
            "float temperature, bool sums) -> Tensor",
            distill_logits, kFromSchema),
        Operator("dslaunch::distill_hidden(Tensor values, Tensor teacher, Tensor labels, int "
                 "ignored, bool sums) -> Tensor",
                 distill_hidden, kFromSchema),
    });
}

// Returns the cross entropy in GRAPH. Throws unless GRAPH has exactly one. WHOSE names the model in
// messages.
Node* cross_entropy_in(Graph& graph, const char* whose) {
    Node* found = nullptr;
    int64_t count = 0;
    for_each_node(*graph.block(), [&](Node& node) {
        if (!is_one_of(node, {"aten::cross_entropy_loss"})) return;
        found = &node;
        ++count;
    });
    if (count != 1)
        fail(ExitCode::kInput,
             "{}: the loss of {} must be one cross entropy of logits (aten::cross_entropy_loss), "
             "but its graph has {}; return logits, and choose the loss with --loss cross_entropy",
             kKey, whose, count);
    return found;
}

// Returns the input of the layer that computes LOGITS; null if no layer does.
Value* hidden_before(Value* logits) {
    Value* const product = follow_back(logits, [](Value* at) -> Value* {
        const Node& node = *at->node();
        const bool passes =
            is_one_of(node, {"aten::view", "aten::reshape", "aten::flatten", "aten::contiguous",
                             "aten::to", "aten::slice", "aten::float", "aten::_unsafe_view"});
        return passes ? const_cast<Value*>(node.input(0)) : nullptr;
    });
    Node& node = *product->node();
    if (is_one_of(node, {"aten::linear", "aten::matmul", "aten::mm"})) return node.input(0);
    return node.kind() == aten::addmm ? node.input(1) : nullptr;
}

class Adder {
  public:
    Adder(Model& model, LoweredGraph& lowered, const config::DistillConfig& config)
        : model_(model), lowered_(lowered), config_(config) {}

    void run(const Teacher& teacher) {
        register_lessons();
        require_teachable(teacher.lowered);
        Node* const own = cross_entropy_in(*lowered_.graph, "the model");
        Node* const end = cross_entropy_in(*teacher.lowered.graph, "the teacher");
        Value* const answer = answer_of(end->input(0), "the teacher");
        Value* const mine = answer_of(own->input(0), "the model");
        keep_only(*teacher.lowered.graph, answer);
        mix(*own, mine, insert(teacher.model, teacher.lowered));
    }

  private:
    void require_teachable(const LoweredGraph& theirs) const {
        if (theirs.arguments != lowered_.arguments)
            fail(ExitCode::kInput, "{}: the teacher takes {}, but the model takes {}", kKey,
                 printable(join(theirs.arguments, ", ")),
                 printable(join(lowered_.arguments, ", ")));
        const bool writes = !theirs.writes.empty() || !theirs.in_place.empty();
        const char* const fault = theirs.takes_module      ? "passes a whole module as an argument"
                                  : !theirs.states.empty() ? "writes attributes"
                                  : writes                 ? "writes its parameters"
                                                           : nullptr;
        if (fault != nullptr)
            fail(ExitCode::kInput, "{}: the teacher's forward {}, which is not supported", kKey,
                 fault);
    }

    // Returns what a lesson compares: LOGITS, or the input of the layer that computes them.
    [[nodiscard]] Value* answer_of(Value* logits, const char* whose) const {
        if (config_.kind == config::DistillKind::kLogits) return logits;
        Value* const hidden = hidden_before(logits);
        if (hidden == nullptr)
            fail(ExitCode::kInput,
                 "dslaunch.distill.kind: hidden needs a linear layer before the loss, but in {} "
                 "there is {}; use logits",
                 whose, describe_node(*logits->node()));
        return hidden;
    }

    // Makes VALUE the only output of GRAPH, and removes the nodes that VALUE does not need.
    static void keep_only(Graph& graph, Value* value) {
        while (!graph.outputs().empty()) graph.eraseOutput(graph.outputs().size() - 1);
        graph.registerOutput(value);
        torch::jit::EliminateDeadCode(graph.block());
    }

    // Inserts THEIRS, the graph of TEACHER, at the beginning of the model's graph. Returns the
    // output of THEIRS.
    Value* insert(const Model& teacher, const LoweredGraph& theirs) {
        std::vector<Value*> inputs;
        for (size_t i = 0; i < theirs.first_parameter(); ++i)
            inputs.push_back(lowered_.graph->inputs()[lowered_.first_argument() + i]);
        for (const int parameter : theirs.parameters)
            inputs.push_back(input_of(teacher.parameters()[parameter]));
        for (const int buffer : theirs.buffers)
            inputs.push_back(input_of(teacher.buffers()[buffer]));
        const WithInsertPoint at_start(*lowered_.graph->nodes().begin());
        return torch::jit::insertGraph(*lowered_.graph, *theirs.graph, inputs).front();
    }

    Value* input_of(const ModelParameter& parameter) {
        const std::string name = kTeacherPrefix + parameter.name;
        at::Tensor tensor = parameter.tensor.detach();
        return add_parameter_input(lowered_,
                                   model_.add_parameter(name, tensor, /*is_helper=*/true));
    }

    Value* input_of(const ModelBuffer& buffer) {
        return add_buffer_input(lowered_,
                                model_.add_buffer(kTeacherPrefix + buffer.name, buffer.tensor));
    }

    void mix(Node& own, Value* mine, Value* theirs) {
        const auto constant = [&](const char* name) {
            const auto number = constant_number(own, name);
            if (!number)
                fail(ExitCode::kInput, "{}: {} has a computed `{}`, which is not supported", kKey,
                     describe_node(own), name);
            return static_cast<int64_t>(*number);
        };
        const int64_t reduction = constant("reduction"), ignored = constant("ignore_index");
        if (reduction == at::Reduction::None)
            fail(ExitCode::kInput, "{}: {} returns a loss for each target, not one loss", kKey,
                 describe_node(own));
        const bool sums = reduction == at::Reduction::Sum;
        const WithInsertPoint behind(own.next());
        Value* const labels = own.input(1);
        Value* const lesson =
            config_.kind == config::DistillKind::kLogits
                ? insert_like(own, Symbol::fromQualString("dslaunch::distill_logits"),
                              {mine, theirs, labels, ignored, config_.temperature, sums})
                : insert_like(own, Symbol::fromQualString("dslaunch::distill_hidden"),
                              {mine, theirs, labels, ignored, sums});
        Value* const part = insert_like(own, aten::mul, {own.output(), 1 - config_.weight});
        Value* const other = insert_like(own, aten::mul, {lesson, config_.weight});
        Value* const sum = insert_like(own, aten::add, {part, other});
        sum->setType(own.output()->type());
        own.output()->replaceAllUsesAfterNodeWith(sum->node(), sum);
    }

    Model& model_;
    LoweredGraph& lowered_;
    const config::DistillConfig& config_;
};

}  // namespace

void add_teacher(Model& model, LoweredGraph& lowered, const config::DistillConfig& config,
                 const Teacher& teacher) {
    Adder(model, lowered, config).run(teacher);
}

}  // namespace dslaunch::graph

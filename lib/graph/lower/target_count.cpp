#include "graph/lower/target_count.h"

#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "graph/lower/device_rewrite.h"
#include "graph/nodes/graph_nodes.h"
#include "graph/writes/written_values.h"

namespace dslaunch::graph {

struct TargetCount::Parts {
    enum class Counted {
        kLabels,    // class numbers other than the ignored class, or rows of probabilities of
                    // classes
        kElements,  // all elements of the target
        kDivisor    // the number that the model itself divides by
    };
    Counted counted = Counted::kLabels;
    int64_t ignored = 0;
    std::vector<size_t> arguments;  // indices of forward's arguments, from 0
    // Computes the count from the arguments. If the model divides by the count, a second output is
    // the count without the lower bound that prevents a division by 0.
    std::unique_ptr<Code> code;
    bool is_summed = false;         // the loss is a sum; the step divides it by the count
    bool is_relaid = false;         // labels are counted before a change of their shape
    bool reads_sizes_only = false;  // only sizes of the arguments are read
    bool picks_only = false;
};

namespace {

using Counted = TargetCount::Parts::Counted;

// The operator that computes the loss, the value that is counted, and the rule for counting it.
struct LossEnd {
    Node* node = nullptr;
    Counted counted = Counted::kLabels;
    Value* value = nullptr;
    int64_t ignored = 0;
    size_t reduction = 0;  // the operator's input that says mean or sum
    bool weighs = false;   // true: weighs by class, so the mean divides by a sum of weights
};

bool is_constant(const Value* value) {
    return value->node()->kind() == prim::Constant;
}

// Returns true for operators that change neither the elements of a tensor nor their number.
bool lays_out_only(const Node& node) {
    return is_one_of(node, {"aten::view", "aten::reshape", "aten::flatten", "aten::contiguous",
                            "aten::squeeze", "aten::unsqueeze", "aten::transpose", "aten::permute",
                            "aten::t", "aten::clone", "aten::alias", "aten::detach",
                            "aten::view_as", "aten::reshape_as", "aten::_unsafe_view"});
}

bool casts(const Node& node) {
    return is_one_of(node, {"aten::to", "aten::type_as", "aten::float", "aten::_to_copy"});
}

// The search for the operator that computes the loss. It goes back from the loss through casts,
// changes of shape, reductions and multiplications by a constant.
class EndFinder {
  public:
    explicit EndFinder(const config::LossConfig& loss) : loss_(loss) {}

    std::optional<LossEnd> find(Value* value) {
        Value* const end = follow_back(value, [this](Value* at) { return operand_before(*at); });
        last_ = end->node();
        if (end->uses().size() != 1) return refuse("whose result is also used elsewhere");
        return end_at(end->node());
    }

    // Returns the reason why the operator that computes the loss was not found.
    [[nodiscard]] std::string why() const {
        return fmt::format("{}{}", last_ == nullptr ? "nothing" : describe_node(*last_),
                           reason_.empty() ? "" : ", " + reason_);
    }

  private:
    std::nullopt_t refuse(std::string reason) {
        reason_ = std::move(reason);
        return std::nullopt;
    }

    // Returns the operand that becomes VALUE by a cast, a change of shape, a reduction or a factor;
    // null if VALUE is computed in any other way or has other uses too.
    Value* operand_before(Value& value) {
        Node& node = *value.node();
        if (value.uses().size() != 1 || node.inputs().size() == 0 || !node.blocks().empty())
            return nullptr;
        Value* const operand = node.input(0);
        if (casts(node) || lays_out_only(node) ||
            is_one_of(node, {"aten::neg", "aten::_autocast_to_full_precision",
                             "aten::_autocast_to_reduced_precision"}))
            return operand;
        if (is_one_of(node, {"aten::mean", "aten::sum"})) {
            is_reduced_ = true;
            return operand;
        }
        if (is_one_of(node, {"aten::mul", "aten::div"}) && is_constant(node.input(1)))
            return operand;
        return node.kind() == aten::mul && is_constant(operand) ? node.input(1) : nullptr;
    }

    std::optional<LossEnd> end_at(Node* node) {
        if (node->inputs().size() == 0 || !node->blocks().empty()) return refuse("");
        const auto integer = [node](size_t input) {
            return torch::jit::constant_as<int64_t>(node->input(input));
        };
        const bool crosses = node->kind() == aten::cross_entropy_loss;
        if (crosses ||
            is_one_of(*node, {"aten::nll_loss_nd", "aten::nll_loss", "aten::nll_loss2d"})) {
            const bool weighs = node->input(2)->type()->kind() != c10::TypeKind::NoneType;
            return with_reduction(
                {node, Counted::kLabels, node->input(1), integer(4).value_or(0), 3, weighs});
        }
        // The output and the target of a named loss have the same shape.
        if (loss_.kind != config::LossKind::kModel) {
            const size_t reduction = node->inputs().size() - 1;
            return with_reduction({node, Counted::kElements, node->input(1), 0, reduction});
        }
        if (is_one_of(*node, {"aten::div", "aten::true_divide"}) && !is_reduced_ &&
            node->inputs().size() == 2 && counts(node->input(1)))
            return LossEnd{node, Counted::kDivisor, node->input(1), 0, 0};
        return refuse("");
    }

    std::optional<LossEnd> with_reduction(const LossEnd& end) {
        const auto reduction = torch::jit::constant_as<int64_t>(end.node->input(end.reduction));
        const bool is_mean = reduction == static_cast<int64_t>(at::Reduction::Mean);
        if (!is_mean && loss_.kind == config::LossKind::kModel)
            return refuse("which is not a mean");
        return end;
    }

    // Returns true if VALUE is a number of elements, or a sum or mean of a mask or of weights.
    static bool counts(const Value* value) {
        const Value* const counted = follow_back(value, [](const Value* at) -> const Value* {
            const Node& node = *at->node();
            const bool passes =
                casts(node) || lays_out_only(node) ||
                is_one_of(node, {"aten::clamp", "aten::clamp_min", "aten::maximum", "aten::max",
                                 "aten::add", "aten::mul", "prim::NumToTensor", "aten::Float",
                                 "prim::max", "aten::ScalarImplicit"});
            return passes && node.inputs().size() > 0 ? node.input(0) : nullptr;
        });
        return is_one_of(*counted->node(), {"aten::sum", "aten::mean", "aten::count_nonzero",
                                            "aten::numel", "aten::size"});
    }

    const config::LossConfig& loss_;
    const Node* last_ = nullptr;
    std::string reason_;
    bool is_reduced_ = false;  // a mean or sum was passed on the way back
};

// The nodes that compute a value only from forward's arguments.
class Slice {
  public:
    explicit Slice(const LoweredGraph& lowered) : lowered_(&lowered) {}

    bool take(Value* value) {
        if (taken_.count(value) > 0) return true;
        Node* const node = value->node();
        if (node == lowered_->graph->param_node()) {
            const size_t input = value->offset();
            if (input < lowered_->first_argument() || input >= lowered_->first_state())
                return false;
            arguments_.insert(input);
            taken_.insert(value);
            return true;
        }
        const c10::FunctionSchema* const schema = node->maybeSchema();
        const bool computes = node->blocks().empty() && !node->hasSideEffects() &&
                              !node->isNondeterministic() && node->kind() != prim::GetAttr &&
                              (schema == nullptr || !schema->is_mutable());
        if (!computes) return false;
        // A cast to an unknown dtype is left out: it does not change how many elements a mask
        // selects.
        if (casts(*node) && !all_taken(*node, 1)) {
            if (!take(node->input(0))) return false;
            stands_for_[value] = node->input(0);
        } else if (!all_taken(*node, 0)) {
            return false;
        } else {
            nodes_.insert(node);
        }
        for (Value* output : node->outputs()) taken_.insert(output);
        return true;
    }

    [[nodiscard]] bool holds(Value* value) const { return taken_.count(value) > 0; }
    [[nodiscard]] const std::set<Value*>& values() const { return taken_; }
    [[nodiscard]] const std::set<size_t>& arguments() const { return arguments_; }

    // Returns true if only the sizes of the arguments are used.
    [[nodiscard]] bool reads_sizes_only() const {
        for (const size_t input : arguments_)
            for (const Use& use : lowered_->graph->inputs()[input]->uses())
                if (nodes_.count(use.user) > 0 &&
                    !is_one_of(*use.user, {"aten::size", "aten::numel", "aten::dim", "aten::len"}))
                    return false;
        return true;
    }

    // Returns true if the nodes of this slice only select, rearrange, cast or pad elements of the
    // arguments.
    [[nodiscard]] bool picks_only() const {
        return std::ranges::all_of(nodes_, [](const Node* node) {
            return lays_out_only(*node) || casts(*node) || node->kind() == prim::Constant ||
                   node->kind() == prim::ListConstruct ||
                   is_one_of(*node, {"aten::slice", "aten::select", "aten::size", "aten::pad",
                                     "aten::constant_pad_nd", "aten::narrow", "aten::long"});
        });
    }

    // Returns a graph that computes RESULTS. Its inputs are the arguments, in their order.
    [[nodiscard]] std::shared_ptr<Graph> graph(const std::vector<Value*>& results) const {
        auto made = std::make_shared<Graph>();
        std::map<Value*, Value*> twins;
        for (const size_t input : arguments_) {
            Value* const from = lowered_->graph->inputs()[input];
            twins[from] = made->addInput();
            twins[from]->setType(from->type());
        }
        const auto twin = [&](Value* value) {
            while (stands_for_.count(value) > 0) value = stands_for_.at(value);
            return twins.at(value);
        };
        for (Node* const node : lowered_->graph->nodes()) {
            if (nodes_.count(node) == 0) continue;
            Node* const copy = made->appendNode(made->createClone(node, twin));
            for (size_t i = 0; i < node->outputs().size(); ++i)
                twins[node->output(i)] = copy->output(i);
        }
        for (Value* const result : results) made->registerOutput(twin(result));
        rewrite_devices(*made->block(), c10::kCPU);
        return made;
    }

  private:
    bool all_taken(const Node& node, size_t first) {
        for (size_t i = first; i < node.inputs().size(); ++i)
            if (!take(const_cast<Node&>(node).input(i))) return false;
        return true;
    }

    const LoweredGraph* lowered_;
    std::set<Node*> nodes_;
    std::set<Value*> taken_;
    std::set<size_t> arguments_;  // inputs of the graph
    std::map<Value*, Value*> stands_for_;
};

// Returns the number in VALUE; nothing if VALUE is not a constant number.
std::optional<double> known_number(const Value* value) {
    const std::optional<IValue> constant = torch::jit::toIValue(value);
    if (!constant) return std::nullopt;
    if (constant->isScalar()) return constant->toScalar().toDouble();
    const bool is_one = constant->isTensor() && constant->toTensor().numel() == 1;
    return is_one ? std::optional(constant->toTensor().item().toDouble()) : std::nullopt;
}

// Returns VALUE without lower bounds that only prevent a division by 0. A minimum of at most 1 is
// such a bound, because no count other than 0 is smaller. A small summand, up to 1e-3, also is one,
// because it hardly changes the count. Other bounds remain.
Value* unbounded(Value* value) {
    constexpr double kTooSmall = 1e-3;
    for (;;) {
        Node* const node = value->node();
        const bool adds = node->kind() == aten::add;
        const bool bounds = adds || is_one_of(*node, {"aten::clamp", "aten::clamp_min",
                                                      "aten::maximum", "aten::max", "prim::max"});
        if (!bounds || node->inputs().size() < 2) return value;
        const std::optional<double> bound = known_number(node->input(1));
        if (!bound || *bound < 0 || *bound > (adds ? kTooSmall : 1)) return value;
        value = node->input(0);
    }
}

// Makes the loss 0 if DIVISION divides by 0, and does not change it otherwise.
void divide_safely(Node* division) {
    Value* const divisor = division->input(1);
    if (!is_tensor(*divisor)) return;
    Graph& graph = *division->owningGraph();
    const WithInsertPoint before(division);
    Value* const counts = insert_like(*division, aten::ne, {divisor, 0});
    Value* const sum = insert_like(*division, aten::mul, {division->input(0), counts});
    Value* const safe = insert_like(*division, aten::masked_fill,
                                    {divisor, graph.insert(aten::eq, {divisor, 0}), 1});
    division->replaceInput(0, sum);
    division->replaceInput(1, safe);
}

void sum_up(const LossEnd& end) {
    if (end.counted == Counted::kDivisor)
        return end.node->output()->replaceAllUsesWith(end.node->input(0));
    const WithInsertPoint before(end.node);
    end.node->replaceInput(end.reduction, end.node->owningGraph()->insertConstant(
                                              static_cast<int64_t>(at::Reduction::Sum)));
}

}  // namespace

namespace {

// Returns the one number that the loss is divided by.
double divisor_in(const IValue& value) {
    if (!value.isTensor()) return value.toScalar().toDouble();
    const int64_t numbers = value.toTensor().numel();
    if (numbers != 1)
        fail(ExitCode::kInput,
             "the loss is divided by a tensor of {} numbers, but must be divided by one number, "
             "the count of its targets",
             numbers);
    return value.toTensor().item<double>();
}

}  // namespace

TargetCount::TargetCount(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}

TargetCount::~TargetCount() = default;

double TargetCount::of(const std::vector<IValue>& batch) const {
    torch::jit::Stack stack;
    for (const size_t argument : parts_->arguments) stack.push_back(batch.at(argument));
    {
        const at::NoGradGuard no_grad;
        const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
        torch::jit::InterpreterState(*parts_->code).run(stack);
    }
    if (parts_->counted == Counted::kDivisor) {
        const double divisor = divisor_in(stack[0]);
        if (parts_->is_summed && divisor < 0)
            fail(ExitCode::kInput,
                 "the loss of a batch is divided by {}, which cannot be a count of targets; take "
                 "the mean over micro batches instead (dslaunch.loss.mean: \"micro_batch\")",
                 divisor);
        return divisor_in(stack[1]) == 0 ? 0 : divisor;
    }
    const at::Tensor& values = stack[0].toTensor();
    if (parts_->counted == Counted::kElements) return static_cast<double>(values.numel());
    if (!values.is_floating_point())
        return static_cast<double>(values.ne(parts_->ignored).sum().item<int64_t>());
    if (parts_->is_summed && parts_->is_relaid)
        fail(ExitCode::kInput,
             "the targets are probabilities whose shape depends on what the model computes, so "
             "their number is not known before it runs; take the mean over micro batches instead "
             "(dslaunch.loss.mean: \"micro_batch\")");
    const int64_t classes = values.dim() < 2 ? values.size(-1) : values.size(1);
    return static_cast<double>(values.numel()) / static_cast<double>(std::max<int64_t>(1, classes));
}

bool TargetCount::varies(bool tokens) const {
    if (parts_->counted == Counted::kElements || parts_->reads_sizes_only) return false;
    return parts_->counted != Counted::kLabels || !parts_->picks_only || !tokens ||
           parts_->ignored >= 0;
}

namespace {

// Returns an object that counts the targets of the loss END in a batch. IS_SUMMED is true if the
// loss is a sum over the targets, and false if the model itself divides by their number. Returns
// null, and sets WHY, if the count does not follow from forward's arguments.
std::shared_ptr<const TargetCount> count_of(const LossEnd& end, bool is_summed,
                                            const LoweredGraph& lowered, std::string& why) {
    auto parts = std::make_unique<TargetCount::Parts>();
    parts->counted = end.counted;
    parts->ignored = end.ignored;
    parts->is_summed = is_summed;
    Value* value = end.value;
    Slice slice(lowered);
    // A change of layout may use sizes that the model computed; the labels before the change have
    // the same count.
    while (!slice.take(value) && end.counted == Counted::kLabels && lays_out_only(*value->node())) {
        value = value->node()->input(0);
        parts->is_relaid = true;
        slice = Slice(lowered);
    }
    if (!slice.holds(value) || slice.arguments().empty()) {
        why = "whose targets are not computed from forward's arguments alone";
        return nullptr;
    }
    const std::set<const Value*> written = find_written_values(*lowered.graph);
    if (std::ranges::any_of(slice.values(),
                            [&](const Value* read) { return written.count(read) > 0; })) {
        why = "whose targets are modified in place by forward";
        return nullptr;
    }
    for (const size_t input : slice.arguments())
        parts->arguments.push_back(input - lowered.first_argument());
    parts->reads_sizes_only =
        value->node() != lowered.graph->param_node() && slice.reads_sizes_only();
    parts->picks_only = slice.picks_only();
    std::vector<Value*> results = {value};
    if (end.counted == Counted::kDivisor) results.push_back(unbounded(value));
    parts->code = std::make_unique<Code>(slice.graph(results), "targets");
    return std::make_shared<const TargetCount>(std::move(parts));
}

}  // namespace

void find_targets(const config::LossConfig& loss, LoweredGraph& lowered) {
    if (loss.is_preference()) {
        lowered.why_no_targets = "a preference loss is a mean over pairs";
        return;
    }
    const bool by_token = loss.mean == config::LossMean::kToken;
    EndFinder finder(loss);
    const std::optional<LossEnd> end = finder.find(lowered.graph->outputs()[0]);
    if (end) {
        std::string why;
        lowered.targets = count_of(*end, by_token, lowered, why);
        if (end->weighs && by_token) {
            lowered.targets = nullptr;
            why = "which divides by class weights";
        }
        if (!why.empty())
            lowered.why_no_targets = fmt::format("{}, {}", describe_node(*end->node), why);
    } else {
        lowered.why_no_targets = finder.why();
    }
    if (lowered.targets && by_token) return sum_up(*end);
    if (lowered.targets && end->counted == Counted::kDivisor) return divide_safely(end->node);
    if (lowered.targets || !by_token) return;
    fail(ExitCode::kConfig,
         "dslaunch.loss.mean: \"token\" needs a loss that is a mean over targets that forward gets "
         "as arguments, but this model's loss ends in {}; let forward return its output and name "
         "the loss (dslaunch.loss.name), or set dslaunch.loss.mean to \"micro_batch\"",
         lowered.why_no_targets);
}

}  // namespace dslaunch::graph

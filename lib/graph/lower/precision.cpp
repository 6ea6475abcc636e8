#include "graph/lower/precision.h"

#include <ATen/core/stack.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <map>
#include <string_view>

#include "graph/archive/scalar_types.h"
#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

using torch::jit::Stack;

namespace {

enum class Cast {
    kWiden,    // 16-bit to fp32 if one of `like` is fp32, as type promotion does
    kFollow,   // to the dtype of the tensor that is written, as copy_ does
    kFull,     // always to fp32
    kCompute,  // always to the compute dtype, as autocast does
};

// The arguments to cast, by their names in the operator's schema. Names that an overload does not
// have are ignored.
struct Rule {
    Cast cast;
    std::vector<std::string_view> arguments;
    std::vector<std::string_view> like;
};

Rule mutual(const std::vector<std::string_view>& arguments) {
    return {Cast::kWiden, arguments, arguments};
}

// Returns the rules. They were found by running each operator under autocast on the CPU with every
// mix of 16-bit and fp32 inputs. tests/unit/graph/precision_test.cpp runs each operator in the
// table.
const std::map<std::string_view, Rule>& rules() {
    static const std::map<std::string_view, Rule> table{
        // These kernels accept 16-bit inputs with fp32 weights, but not fp32 inputs with 16-bit
        // weights. Their statistics are always fp32.
        {"aten::batch_norm", {Cast::kWiden, {"weight", "bias"}, {"input", "running_mean"}}},
        {"aten::native_batch_norm", {Cast::kWiden, {"weight", "bias"}, {"input", "running_mean"}}},
        {"aten::instance_norm", {Cast::kWiden, {"weight", "bias"}, {"input"}}},
        {"aten::group_norm", {Cast::kWiden, {"weight", "bias"}, {"input"}}},
        {"aten::layer_norm", {Cast::kWiden, {"weight", "bias"}, {"input"}}},
        {"aten::native_layer_norm", {Cast::kWiden, {"weight", "bias"}, {"input"}}},
        // These kernels need a single dtype.
        {"aten::_weight_norm", mutual({"v", "g"})},
        {"aten::addmv", mutual({"self", "mat", "vec"})},
        {"aten::addr", mutual({"self", "vec1", "vec2"})},
        {"aten::bilinear", mutual({"input1", "input2", "weight", "bias"})},
        {"aten::cross", mutual({"self", "other"})},
        {"aten::dot", mutual({"self", "tensor"})},
        {"aten::index_add", mutual({"self", "source"})},
        {"aten::index_put", mutual({"self", "values"})},
        {"aten::index_reduce", mutual({"self", "source"})},
        {"aten::inner", mutual({"self", "other"})},
        {"aten::lerp", mutual({"self", "end", "weight"})},
        {"aten::linalg_cross", mutual({"self", "other"})},
        {"aten::masked_scatter", mutual({"self", "source"})},
        {"aten::mv", mutual({"self", "vec"})},
        {"aten::scatter", mutual({"self", "src"})},
        {"aten::scatter_add", mutual({"self", "src"})},
        {"aten::scatter_reduce", mutual({"self", "src"})},
        {"aten::tensordot", mutual({"self", "other"})},
        {"aten::vdot", mutual({"self", "other"})},
        // These kernels need a single dtype, which the written tensor or another argument decides.
        {"aten::embedding_bag", {Cast::kFollow, {"per_sample_weights"}, {"weight"}}},
        {"aten::index_add_", {Cast::kFollow, {"source"}, {"self"}}},
        {"aten::index_copy_", {Cast::kFollow, {"source"}, {"self"}}},
        {"aten::index_put_", {Cast::kFollow, {"values"}, {"self"}}},
        {"aten::index_reduce_", {Cast::kFollow, {"source"}, {"self"}}},
        {"aten::lerp_", {Cast::kFollow, {"end", "weight"}, {"self"}}},
        {"aten::masked_scatter_", {Cast::kFollow, {"source"}, {"self"}}},
        {"aten::scatter_", {Cast::kFollow, {"src"}, {"self"}}},
        {"aten::scatter_add_", {Cast::kFollow, {"src"}, {"self"}}},
        {"aten::scatter_reduce_", {Cast::kFollow, {"src"}, {"self"}}},
        // These operators have no 16-bit kernel, or their 16-bit kernel overflows.
        {"aten::complex", {Cast::kFull, {"real", "imag"}, {}}},
        {"aten::det", {Cast::kFull, {"self"}, {}}},
        {"aten::linalg_det", {Cast::kFull, {"A"}, {}}},
        {"aten::linalg_matrix_exp", {Cast::kFull, {"self"}, {}}},
        {"aten::linalg_slogdet", {Cast::kFull, {"A"}, {}}},
        {"aten::logdet", {Cast::kFull, {"self"}, {}}},
        {"aten::matrix_exp", {Cast::kFull, {"self"}, {}}},
        {"aten::rrelu", {Cast::kFull, {"self"}, {}}},
        {"aten::slogdet", {Cast::kFull, {"self"}, {}}},
        // oneDNN has no fp16 LSTM with fp32 inputs.
        {"aten::lstm", {Cast::kCompute, {"input", "data"}, {}}},
    };
    return table;
}

// Runs dslaunch::match_dtype(value, like, follow): see Cast::kWiden and Cast::kFollow.
void match_dtype(Stack& stack) {
    const bool follow = torch::jit::pop(stack).toBool();
    const IValue like = torch::jit::pop(stack);
    if (!like.isTensor() || !stack.back().isTensor()) return;
    const at::Tensor value = stack.back().toTensor();
    if (!like.toTensor().defined() || !value.defined()) return;
    const at::ScalarType target = like.toTensor().scalar_type();
    if (value.scalar_type() == target) return;
    if (!is_trained_type(target) || !is_trained_type(value.scalar_type())) return;
    if (!follow && target != at::kFloat) return;
    stack.back() = value.to(target);
}

// Registers match_dtype with TorchScript when the first graph needs it.
void register_operator() {
    static const torch::jit::RegisterOperators operators({torch::jit::Operator(
        "dslaunch::match_dtype(Tensor(a)? value, Tensor? like, bool follow) -> Tensor(a)?",
        match_dtype, c10::AliasAnalysisKind::FROM_SCHEMA)});
}

class CastInserter {
  public:
    CastInserter(Graph& graph, at::ScalarType dtype) : graph_(graph), dtype_(dtype) {}

    void run() {
        for_each_node(*graph_.block(), [this](Node& node) {
            const auto found = rules().find(node.kind().toQualString());
            if (found != rules().end() && node.maybeSchema() != nullptr)
                apply(found->second, &node);
        });
    }

  private:
    void apply(const Rule& rule, Node* node) {
        WithInsertPoint before(node);
        // Dtypes are compared with the operator's original inputs, so these inputs are collected
        // before any of them is replaced.
        const std::map<int, Value*> like = tensors(*node, rule.like);
        for (const auto& [index, value] : tensors(*node, rule.arguments)) {
            Value* result = value;
            if (rule.cast == Cast::kFull) {
                result = in_full_precision(value);
            } else if (rule.cast == Cast::kCompute) {
                result =
                    graph_.insert(Symbol::fromQualString("aten::_autocast_to_reduced_precision"),
                                  {value, true, true, static_cast<int64_t>(dtype_),
                                   static_cast<int64_t>(dtype_)});
            } else {
                for (const auto& [other, pattern] : like)
                    if (other != index) result = matched(result, pattern, rule.cast);
            }
            if (result == value) continue;
            result->node()->copyMetadata(node);
            node->replaceInput(static_cast<size_t>(index), result);
        }
    }

    Value* matched(Value* value, Value* like, Cast cast) {
        Value* follow = graph_.insertConstant(cast == Cast::kFollow);
        Node* node =
            graph_.create(Symbol::fromQualString("dslaunch::match_dtype"), {value, like, follow});
        graph_.insertNode(node);
        node->output()->setType(value->type());
        return node->output();
    }

    // Returns the inputs of NODE that are named in NAMES and may be tensors, by input index.
    static std::map<int, Value*> tensors(const Node& node,
                                         const std::vector<std::string_view>& names) {
        std::map<int, Value*> found;
        for (const std::string_view name : names) {
            const auto index = node.schema().argumentIndexWithName(name);
            if (!index) continue;
            Value* value = const_cast<Node&>(node).input(static_cast<size_t>(*index));
            const c10::TypePtr optional = c10::OptionalType::ofTensor();
            if (value->type()->kind() != c10::TypeKind::NoneType &&
                value->type()->isSubtypeOf(*optional))
                found.emplace(*index, value);
        }
        return found;
    }

    Graph& graph_;
    at::ScalarType dtype_;
};

}  // namespace

void insert_precision_casts(Graph& graph, at::ScalarType dtype) {
    register_operator();
    CastInserter(graph, dtype).run();
}

Value* in_full_precision(Value* value) {
    return value->owningGraph()->insert(Symbol::fromQualString("aten::_autocast_to_full_precision"),
                                        {value, true, true});
}

std::string precision_advice(at::ScalarType dtype) {
    if (dtype == at::kFloat) return {};
    return fmt::format(
        " in {0} (if it works in fp32, cast this operator's inputs to one dtype in the model, or "
        "turn off {1} or torch_autocast)",
        dtype == at::kHalf ? "float16" : "bfloat16", dtype == at::kHalf ? "fp16" : "bf16");
}

}  // namespace dslaunch::graph

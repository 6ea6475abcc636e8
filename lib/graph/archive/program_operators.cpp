#include "graph/archive/program_operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/core.h>

#include <array>
#include <map>
#include <utility>

#include "base/text.h"

namespace dslaunch::graph {

namespace {

using Table = std::map<std::string_view, const char*>;

const char* in(const Table& table, std::string_view name) {
    const auto found = table.find(name);
    return found == table.end() ? nullptr : found->second;
}

}  // namespace

std::optional<Operation> torch_operation(std::string_view name) {
    const size_t first = name.find('.'), last = name.rfind('.');
    if (first == std::string_view::npos || first == last) return std::nullopt;
    Operation operation;
    operation.name =
        fmt::format("{}::{}", name.substr(0, first), name.substr(first + 1, last - first - 1));
    const std::string overload(name.substr(last + 1));
    const auto handle = c10::Dispatcher::singleton().findSchema(
        {operation.name, overload == "default" ? "" : overload});
    if (!handle) return std::nullopt;
    operation.schema = &handle->schema();
    return operation;
}

std::string why_no_match(const Operation& operation,
                         const std::vector<torch::jit::Value*>& values) {
    std::vector<std::string> types;
    for (const torch::jit::Value* value : values) types.push_back(value->type()->repr_str());
    return fmt::format("its arguments are of the types ({}), the operator is {}", join(types, ", "),
                       toString(*operation.schema));
}

const char* python_operator(std::string_view target) {
    static const Table table{
        {"_operator.add", "aten::add"},
        {"_operator.sub", "aten::sub"},
        {"_operator.mul", "aten::mul"},
        {"_operator.floordiv", "aten::floordiv"},
        {"_operator.mod", "aten::remainder"},
        {"_operator.truediv", "aten::div"},
        {"_operator.neg", "aten::neg"},
        {"_operator.pow", "aten::pow"},
        {"_operator.eq", "aten::eq"},
        {"_operator.ne", "aten::ne"},
        {"_operator.lt", "aten::lt"},
        {"_operator.le", "aten::le"},
        {"_operator.gt", "aten::gt"},
        {"_operator.ge", "aten::ge"},
        {"_operator.and_", "aten::__and__"},
        {"_operator.or_", "aten::__or__"},
        {"_operator.xor", "aten::__xor__"},
        {"_operator.not_", "aten::__not__"},
        {"_operator.lshift", "aten::__lshift__"},
        {"_operator.rshift", "aten::__rshift__"},
        {"_operator.getitem", "aten::__getitem__"},
        {"math.ceil", "aten::ceil"},
        {"math.floor", "aten::floor"},
        {"math.sqrt", "aten::sqrt"},
        {"math.trunc", "aten::Int"},
        {"torch.sym_int", "aten::Int"},
        {"torch.sym_float", "aten::Float"},
        {"torch.sym_max", "prim::max"},
        {"torch.sym_min", "prim::min"},
        {"torch.sym_not", "aten::__not__"},
        {"torch._sym_sqrt", "aten::sqrt"},
    };
    return in(table, target);
}

const char* size_operator(std::string_view target) {
    static const Table table{
        {"torch.ops.aten.sym_size.int", "aten::size"},
        {"torch.ops.aten.sym_size.default", "aten::size"},
        {"torch.ops.aten.sym_stride.int", "aten::stride"},
        {"torch.ops.aten.sym_numel.default", "aten::numel"},
        {"torch.ops.aten.sym_storage_offset.default", "aten::storage_offset"},
    };
    return in(table, target);
}

bool is_assertion(std::string_view target) {
    constexpr std::array<std::string_view, 6> kNames = {
        "torch.ops.aten._assert_scalar.",
        "torch.ops.aten._assert_async.",
        "torch.ops.aten._assert_tensor_metadata.",
        "torch.ops.aten.sym_constrain_range.",
        "torch.ops.aten.sym_constrain_range_for_size.",
        "torch.ops.aten._functional_assert_async."};
    for (const std::string_view name : kNames)
        if (target.starts_with(name)) return true;
    return false;
}

std::string put_tensor_first(torch::jit::Graph& graph, const std::string& name,
                             std::vector<torch::jit::NamedValue>& positional,
                             std::vector<torch::jit::NamedValue>& named) {
    const auto is_tensor = [&](size_t i) {
        return positional[i].value(graph)->type()->isSubtypeOf(*c10::TensorType::get());
    };
    static const Table orders{
        {"aten::add", "aten::add"}, {"aten::mul", "aten::mul"}, {"aten::sub", "aten::rsub"}};
    const char* const swapped = in(orders, name);
    if (swapped == nullptr || positional.size() != 2 || is_tensor(0) || !is_tensor(1)) return name;
    std::swap(positional[0], positional[1]);
    if (name == "aten::sub" || named.empty()) return swapped;
    positional[0] = torch::jit::NamedValue(
        graph.insert(c10::aten::mul, {positional[0], named[0].value(graph)}));
    named.clear();
    return swapped;
}

const char* train_flag(std::string_view operation) {
    static const Table table{
        {"aten::dropout", "train"},
        {"aten::dropout_", "train"},
        {"aten::feature_dropout", "train"},
        {"aten::feature_dropout_", "train"},
        {"aten::alpha_dropout", "train"},
        {"aten::alpha_dropout_", "train"},
        {"aten::feature_alpha_dropout", "train"},
        {"aten::feature_alpha_dropout_", "train"},
        {"aten::native_dropout", "train"},
        {"aten::batch_norm", "training"},
        {"aten::native_batch_norm", "training"},
        {"aten::_native_batch_norm_legit", "training"},
        {"aten::_native_batch_norm_legit_functional", "training"},
        {"aten::cudnn_batch_norm", "training"},
        {"aten::rrelu", "training"},
        {"aten::rrelu_", "training"},
        {"aten::lstm", "train"},
        {"aten::gru", "train"},
        {"aten::rnn_tanh", "train"},
        {"aten::rnn_relu", "train"},
    };
    return in(table, operation);
}

const char* train_probability(std::string_view operation) {
    return operation == "aten::scaled_dot_product_attention" ? "dropout_p" : nullptr;
}

}  // namespace dslaunch::graph

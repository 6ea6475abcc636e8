#include "graph/archive/program_values.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <fmt/core.h>

#include <array>
#include <map>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::graph {

using c10::TypeKind;
using storage::ExportedValue;

namespace {

at::MemoryFormat memory_format_of_code(int64_t code) {
    constexpr at::MemoryFormat kFormats[] = {
        at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast,
        at::MemoryFormat::ChannelsLast3d, at::MemoryFormat::Preserve};
    if (code < 1 || code > std::ssize(kFormats))
        fail(ExitCode::kInput, "memory format {} is not supported by this version", code);
    return kFormats[code - 1];
}

int64_t layout_of_code(int64_t code) {
    constexpr int64_t kStrided = 7;
    if (code != kStrided) fail(ExitCode::kInput, "only dense tensors can be trained");
    return static_cast<int64_t>(at::Layout::Strided);
}

}  // namespace

bool wants(const c10::TypePtr& type, TypeKind kind) {
    if (type->kind() == kind) return true;
    const auto optional = type->cast<c10::OptionalType>();
    return optional != nullptr && optional->getElementType()->kind() == kind;
}

at::ScalarType scalar_type_of_code(int64_t code) {
    static const std::map<int64_t, at::ScalarType> table{{1, at::kByte},
                                                         {2, at::kChar},
                                                         {3, at::kShort},
                                                         {4, at::kInt},
                                                         {5, at::kLong},
                                                         {6, at::kHalf},
                                                         {7, at::kFloat},
                                                         {8, at::kDouble},
                                                         {9, at::kComplexHalf},
                                                         {10, at::kComplexFloat},
                                                         {11, at::kComplexDouble},
                                                         {12, at::kBool},
                                                         {13, at::kBFloat16},
                                                         {28, at::kUInt16},
                                                         {29, at::kFloat8_e4m3fn},
                                                         {30, at::kFloat8_e5m2},
                                                         {31, at::kFloat8_e4m3fnuz},
                                                         {32, at::kFloat8_e5m2fnuz}};
    const auto found = table.find(code);
    if (found == table.end())
        fail(ExitCode::kInput, "the number type {} is not supported by this version", code);
    return found->second;
}

std::optional<IValue> constant_of(const ExportedValue& value) {
    return std::visit(
        [](const auto& held) -> std::optional<IValue> {
            using T = std::decay_t<decltype(held)>;
            if constexpr (std::is_same_v<T, std::monostate>) {
                return IValue();
            } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double> ||
                                 std::is_same_v<T, bool> || std::is_same_v<T, std::string> ||
                                 std::is_same_v<T, std::vector<int64_t>> ||
                                 std::is_same_v<T, std::vector<double>> ||
                                 std::is_same_v<T, std::vector<std::string>>) {
                return IValue(held);
            } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
                c10::List<bool> list;
                for (const bool flag : held) list.push_back(flag);
                return IValue(list);
            } else if constexpr (std::is_same_v<T, storage::SymInt> ||
                                 std::is_same_v<T, storage::SymFloat> ||
                                 std::is_same_v<T, storage::SymBool>) {
                return held.name.empty() ? std::optional(IValue(held.number)) : std::nullopt;
            } else if constexpr (std::is_same_v<T, storage::ScalarTypeCode>) {
                return IValue(static_cast<int64_t>(scalar_type_of_code(held.code)));
            } else if constexpr (std::is_same_v<T, storage::MemoryFormatCode>) {
                return IValue(static_cast<int64_t>(memory_format_of_code(held.code)));
            } else if constexpr (std::is_same_v<T, storage::LayoutCode>) {
                return IValue(layout_of_code(held.code));
            } else if constexpr (std::is_same_v<T, storage::DeviceName>) {
                return IValue(c10::Device(held.type));
            } else if constexpr (std::is_same_v<T, storage::TensorName>) {
                return held.name.empty() ? std::optional(IValue()) : std::nullopt;
            } else {
                return std::nullopt;
            }
        },
        value);
}

c10::TypePtr element_of(const c10::TypePtr& type) {
    if (const auto list = type->cast<c10::ListType>()) return list->getElementType();
    const auto optional = type->cast<c10::OptionalType>();
    return optional == nullptr ? nullptr : element_of(optional->getElementType());
}

IValue constant_as(const IValue& value, const c10::Argument& parameter) {
    const c10::TypePtr& type = parameter.type();
    if (value.isInt() && wants(type, TypeKind::FloatType))
        return static_cast<double>(value.toInt());
    if (value.isBool() && wants(type, TypeKind::NumberType))
        return static_cast<int64_t>(value.toBool());
    const c10::TypePtr element = element_of(type);
    if (element == nullptr) return value;
    const auto count = static_cast<size_t>(parameter.N().value_or(1));
    if (value.isInt() && element->kind() == TypeKind::IntType)
        return std::vector<int64_t>(count, value.toInt());
    if (element->kind() != TypeKind::FloatType) return value;
    if (value.isDouble()) return std::vector<double>(count, value.toDouble());
    if (!value.isIntList()) return value;
    std::vector<double> numbers;
    for (const int64_t number : value.toIntVector()) numbers.push_back(static_cast<double>(number));
    return numbers;
}

std::string name_of(const ExportedValue& value) {
    if (const auto* tensor = std::get_if<storage::TensorName>(&value)) return tensor->name;
    if (const auto* number = std::get_if<storage::SymInt>(&value)) return number->name;
    if (const auto* number = std::get_if<storage::SymFloat>(&value)) return number->name;
    if (const auto* flag = std::get_if<storage::SymBool>(&value)) return flag->name;
    return {};
}

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

std::string why_no_match(const Operation& operation, const std::vector<Value*>& values) {
    std::vector<std::string> types;
    for (const Value* value : values) types.push_back(value->type()->repr_str());
    return fmt::format("its arguments have the types ({}), but the operator is {}",
                       join(types, ", "), toString(*operation.schema));
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

std::string put_tensor_first(Graph& graph, const std::string& name,
                             std::vector<NamedValue>& positional, std::vector<NamedValue>& named) {
    const auto is_tensor = [&](size_t i) {
        return positional[i].value(graph)->type()->isSubtypeOf(*c10::TensorType::get());
    };
    static const Table orders{
        {"aten::add", "aten::add"}, {"aten::mul", "aten::mul"}, {"aten::sub", "aten::rsub"}};
    const char* const swapped = in(orders, name);
    if (swapped == nullptr || positional.size() != 2 || is_tensor(0) || !is_tensor(1)) return name;
    std::swap(positional[0], positional[1]);
    if (name == "aten::sub" || named.empty()) return swapped;
    positional[0] = NamedValue(graph.insert(aten::mul, {positional[0], named[0].value(graph)}));
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

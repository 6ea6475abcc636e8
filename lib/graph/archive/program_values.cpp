#include "graph/archive/program_values.h"

#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>

#include <map>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/error.h"

namespace dslaunch::graph {

using c10::IValue;
using c10::TypeKind;
using storage::ExportedValue;

namespace {

at::MemoryFormat memory_format_of_code(int64_t code) {
    switch (code) {
        case 1:
            return at::MemoryFormat::Contiguous;
        case 2:
            return at::MemoryFormat::ChannelsLast;
        case 3:
            return at::MemoryFormat::ChannelsLast3d;
        case 4:
            return at::MemoryFormat::Preserve;
    }
    fail(ExitCode::kInput, "memory format {} is not known to this version", code);
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
        fail(ExitCode::kInput, "the type of numbers {} is not known to this version", code);
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

}  // namespace dslaunch::graph

#include "graph/trust/slot_types.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/class_type.h>
#include <ATen/core/enum_type.h>
#include <ATen/core/jit_type.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "graph/nodes/names.h"

namespace dslaunch::graph {

using c10::TypeKind;

namespace {

bool is_of(const IValue& value, const c10::Type& type);

bool are_elements_of(const IValue& list, const c10::Type& type) {
    if (!list.isList()) return false;
    if (list.isTensorList()) return c10::TensorType::get()->isSubtypeOf(type);
    if (list.isIntList()) return c10::IntType::get()->isSubtypeOf(type);
    if (list.isDoubleList()) return c10::FloatType::get()->isSubtypeOf(type);
    if (list.isBoolList()) return c10::BoolType::get()->isSubtypeOf(type);
    return std::ranges::all_of(list.toListRef(),
                               [&](const IValue& item) { return is_of(item, type); });
}

bool are_parts_of(const IValue& tuple, const c10::Type& type) {
    if (!tuple.isTuple()) return false;
    const auto& parts = tuple.toTupleRef().elements();
    const auto& types = type.containedTypes();
    return std::equal(
        parts.begin(), parts.end(), types.begin(), types.end(),
        [](const IValue& part, const c10::TypePtr& wanted) { return is_of(part, *wanted); });
}

bool are_items_of(const IValue& dict, const c10::Type& type) {
    if (!dict.isGenericDict()) return false;
    for (const auto& item : dict.toGenericDict())
        if (!is_of(item.key(), *type.containedType(0)) ||
            !is_of(item.value(), *type.containedType(1)))
            return false;
    return true;
}

bool is_of(const IValue& value, const c10::Type& type) {
    switch (type.kind()) {
        case TypeKind::TensorType:
            return value.isTensor();
        case TypeKind::IntType:
            return value.isInt();
        case TypeKind::FloatType:
            return value.isDouble();
        case TypeKind::ComplexType:
            return value.isComplexDouble();
        case TypeKind::NumberType:
            return value.isScalar();
        case TypeKind::BoolType:
            return value.isBool();
        case TypeKind::StringType:
            return value.isString();
        case TypeKind::NoneType:
            return value.isNone();
        case TypeKind::DeviceObjType:
            return value.isDevice();
        case TypeKind::OptionalType:
            return value.isNone() || is_of(value, *type.containedType(0));
        case TypeKind::UnionType:
            return std::ranges::any_of(type.containedTypes(),
                                       [&](const c10::TypePtr& one) { return is_of(value, *one); });
        case TypeKind::ListType:
            return are_elements_of(value, *type.containedType(0));
        case TypeKind::TupleType:
            return are_parts_of(value, type);
        case TypeKind::DictType:
            return are_items_of(value, type);
        case TypeKind::ClassType:
            return value.isObject() && *value.toObjectRef().type() == type;
        case TypeKind::EnumType:
            return value.isEnum() && *value.toEnumHolder()->type() == type;
        case TypeKind::AnyType:
            return true;
        default:
            return value.type()->isSubtypeOf(type);
    }
}

}  // namespace

void check_slots(const c10::ivalue::Object& object) {
    const c10::ClassType& type = *object.type();
    for (size_t i = 0; i < type.numAttributes(); ++i)
        if (!is_of(object.getSlot(i), *type.getAttribute(i)))
            fail(ExitCode::kInput,
                 "attribute {} of a {} has the type {}, but its class declares {}; the archive is "
                 "damaged",
                 printable(type.getAttributeName(i)),
                 printable(type.name() ? type.name()->qualifiedName() : "class"),
                 printable(object.getSlot(i).type()->repr_str()),
                 printable(type.getAttribute(i)->repr_str()));
}

bool has_enumerator(const c10::Type& type, const storage::PickleValue& value) {
    using Kind = storage::PickleValue::Kind;
    const auto enumeration = type.cast<c10::EnumType>();
    if (enumeration == nullptr) return false;
    for (const auto& [name, held] : enumeration->enumNamesValues())
        if ((value.kind == Kind::kInteger && held.isInt() && held.toInt() == value.integer) ||
            (value.kind == Kind::kReal && held.isDouble() && held.toDouble() == value.real) ||
            (value.kind == Kind::kText && held.isString() && held.toStringRef() == value.text))
            return true;
    return false;
}

}  // namespace dslaunch::graph

#include "graph/nodes/tensor_values.h"

#include <set>

namespace dslaunch::graph {

namespace {

using TensorMap = std::function<at::Tensor(const at::Tensor&)>;
using TensorUse = std::function<void(const at::Tensor&)>;

IValue map_tuple(const IValue& value, const TensorMap& map) {
    std::vector<IValue> elements;
    for (const IValue& element : value.toTupleRef().elements())
        elements.push_back(map_tensors(element, map));
    const std::shared_ptr<c10::TupleType> type = value.toTupleRef().type();
    if (type->schema() != nullptr)
        return c10::ivalue::Tuple::createNamed(std::move(elements), type);
    return c10::ivalue::Tuple::create(std::move(elements));
}

IValue map_list(const IValue& value, const TensorMap& map) {
    const c10::List<IValue> from = value.toList();
    c10::impl::GenericList to(from.elementType());
    to.reserve(from.size());
    for (const IValue& element : value.toListRef()) to.push_back(map_tensors(element, map));
    return to;
}

IValue map_dict(const IValue& value, const TensorMap& map) {
    const auto from = value.toGenericDict();
    c10::impl::GenericDict to(from.keyType(), from.valueType());
    for (const auto& item : from) to.insert(item.key(), map_tensors(item.value(), map));
    return to;
}

}  // namespace

IValue map_tensors(const IValue& value, const TensorMap& map) {
    if (value.isTensor()) return value.toTensor().defined() ? IValue(map(value.toTensor())) : value;
    if (value.isTuple()) return map_tuple(value, map);
    if (value.isGenericDict()) return map_dict(value, map);
    // Lists of numbers contain no tensor; they are shared unchanged.
    if (value.isIntList() || value.isDoubleList() || value.isBoolList()) return value;
    if (value.isList()) return map_list(value, map);
    return value;
}

void for_each_tensor(const IValue& value, const TensorUse& use) {
    value.visit([&](const IValue& part) {
        if (part.isTensor() && part.toTensor().defined()) use(part.toTensor());
        return part.isObject();
    });
}

void for_each_tensor_of_object(const IValue& object, const TensorUse& use) {
    std::set<const void*> seen;
    object.visit([&](const IValue& part) {
        if (part.isTensor() && part.toTensor().defined()) use(part.toTensor());
        return part.isObject() && !seen.insert(&part.toObjectRef()).second;
    });
}

}  // namespace dslaunch::graph

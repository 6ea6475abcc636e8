#include "graph/lower/live_values.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace dslaunch::graph {

using c10::IValue;
using TensorMap = std::function<at::Tensor(const at::Tensor&)>;

namespace {

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
    // Lists of numbers hold no tensor; they are shared as they are.
    if (value.isIntList() || value.isDoubleList() || value.isBoolList()) return value;
    if (value.isList()) return map_list(value, map);
    return value;
}

Boundary make_boundary(const std::vector<IValue>& outputs,
                       const std::vector<const c10::StorageImpl*>& lenders) {
    Boundary boundary;
    std::unordered_map<const c10::TensorImpl*, at::Tensor> detached;
    // The producers are held until the end, so that no address is reused.
    std::vector<at::Tensor> seen;
    const TensorMap detach = [&](const at::Tensor& tensor) {
        const auto found = detached.find(tensor.unsafeGetTensorImpl());
        if (found != detached.end()) return found->second;
        const bool borrowed = tensor.has_storage() &&
                              std::find(lenders.begin(), lenders.end(),
                                        tensor.storage().unsafeGetStorageImpl()) != lenders.end();
        const at::Tensor producer = borrowed ? tensor.clone() : tensor;
        at::Tensor leaf = producer.detach();
        if (producer.requires_grad()) {
            leaf.set_requires_grad(true);
            boundary.producers.push_back(producer);
            boundary.leaves.push_back(leaf);
        }
        seen.push_back(tensor);
        detached.emplace(tensor.unsafeGetTensorImpl(), leaf);
        return leaf;
    };
    for (const IValue& output : outputs) boundary.values.push_back(map_tensors(output, detach));
    return boundary;
}

int64_t Boundary::bytes() const {
    std::unordered_set<const c10::StorageImpl*> counted;
    int64_t total = 0;
    for (const IValue& value : values) {
        static_cast<void>(map_tensors(value, [&](const at::Tensor& tensor) {
            if (tensor.has_storage() &&
                counted.insert(tensor.storage().unsafeGetStorageImpl()).second)
                total += static_cast<int64_t>(tensor.storage().nbytes());
            return tensor;
        }));
    }
    return total;
}

}  // namespace dslaunch::graph

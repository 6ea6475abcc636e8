#include "graph/lower/live_values.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace dslaunch::graph {

Boundary make_boundary(const std::vector<IValue>& outputs,
                       const std::vector<const c10::StorageImpl*>& lenders) {
    Boundary boundary;
    std::unordered_map<const c10::TensorImpl*, at::Tensor> detached;
    // The tensors are kept alive until the end, so that no address is reused.
    std::vector<at::Tensor> seen;
    const auto detach = [&](const at::Tensor& tensor) {
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
    for (const IValue& value : values)
        for_each_tensor(value, [&](const at::Tensor& tensor) {
            if (tensor.has_storage() &&
                counted.insert(tensor.storage().unsafeGetStorageImpl()).second)
                total += static_cast<int64_t>(tensor.storage().nbytes());
        });
    return total;
}

}  // namespace dslaunch::graph

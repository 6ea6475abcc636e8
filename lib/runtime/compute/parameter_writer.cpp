#include "runtime/compute/parameter_writer.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "graph/segment/new_values.h"

namespace dslaunch::runtime {

ParameterWriter::ParameterWriter(const graph::SegmentedModel& model, WritableState& state,
                                 const std::function<bool(int)>& is_here)
    : model_(model), state_(state) {
    for (const graph::ParameterWrites& writes : model.lowered().writes) {
        if (is_here && !is_here(writes.written.front())) continue;
        writes_.push_back(&writes);
        for (const int parameter : writes.parameters)
            if (std::ranges::find(read_, parameter) == read_.end()) read_.push_back(parameter);
        written_.insert(written_.end(), writes.written.begin(), writes.written.end());
    }
}

void ParameterWriter::run() {
    if (writes_.empty()) return;
    state_.rewrite(read_, written_, [&](const std::vector<at::Tensor>& whole) {
        std::vector<at::Tensor> values;
        for (const graph::ParameterWrites* writes : writes_) {
            std::vector<at::Tensor> read;
            for (const int parameter : writes->parameters)
                read.push_back(whole[std::ranges::find(read_, parameter) - read_.begin()]);
            for (at::Tensor& value : graph::new_values(model_.model(), *writes, read))
                values.push_back(std::move(value));
        }
        return values;
    });
}

}  // namespace dslaunch::runtime

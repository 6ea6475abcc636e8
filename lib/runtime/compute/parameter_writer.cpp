#include "runtime/compute/parameter_writer.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <vector>

#include "graph/segment/new_values.h"

namespace dslaunch::runtime {

void write_parameters(const graph::SegmentedModel& model, WritableState& state,
                      const std::function<bool(int)>& is_here) {
    std::vector<const graph::ParameterWrites*> all;
    std::vector<int> read;  // without repeats
    std::vector<int> written;
    for (const graph::ParameterWrites& writes : model.lowered().writes) {
        if (is_here && !is_here(writes.written.front())) continue;
        all.push_back(&writes);
        for (const int parameter : writes.parameters)
            if (std::ranges::find(read, parameter) == read.end()) read.push_back(parameter);
        written.insert(written.end(), writes.written.begin(), writes.written.end());
    }
    if (all.empty()) return;
    state.rewrite(read, written, [&](const std::vector<at::Tensor>& whole) {
        std::vector<at::Tensor> values;
        for (const graph::ParameterWrites* writes : all) {
            std::vector<at::Tensor> arguments;
            for (const int parameter : writes->parameters)
                arguments.push_back(whole[std::ranges::find(read, parameter) - read.begin()]);
            for (at::Tensor& value : graph::new_values(model.model(), *writes, arguments))
                values.push_back(std::move(value));
        }
        return values;
    });
}

}  // namespace dslaunch::runtime

#include "graph/segment/moved_buffers.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_or.h>
#include <torch/csrc/jit/ir/ir.h>

#include <set>

#include "graph/lower/precision.h"
#include "graph/segment/compute_context.h"
#include "graph/segment/kept_buffers.h"
#include "graph/writes/input_aliases.h"

namespace dslaunch::graph {

namespace {

std::vector<at::Tensor> copies_of(const Model& model) {
    std::vector<at::Tensor> copies;
    for (const ModelBuffer& buffer : model.buffers()) copies.push_back(buffer.tensor.clone());
    return copies;
}

// A NaN is equal to itself.
bool is_equal(const at::Tensor& a, const at::Tensor& b) {
    return at::logical_or(a == b, at::logical_and(a.isnan(), b.isnan())).all().item<bool>();
}

// Returns the buffers that SEGMENT writes by values, whatever these are now: a copy that follows a
// weight may be equal to it in the first step.
std::set<int> written_buffers(const Segment& segment) {
    std::set<int> buffers;
    const auto inputs = segment.graph->inputs();
    const size_t first = inputs.size() - segment.buffers.size();
    const std::set<const torch::jit::Value*> written =
        find_written_inputs(*segment.graph, WritesCounted::kByValues);
    for (size_t i = 0; i < segment.buffers.size(); ++i)
        if (written.count(inputs[first + i]) > 0) buffers.insert(segment.buffers[i]);
    return buffers;
}

}  // namespace

std::vector<std::vector<int>> moved_buffers(const SegmentedModel& segmented,
                                            const std::vector<c10::IValue>& arguments) {
    const LoweredGraph& lowered = segmented.lowered();
    const ComputeContext context(false, lowered.compute_dtype, lowered.device.type());
    const Model& model = segmented.model();
    const KeptBuffers kept(model, lowered);
    std::vector<c10::IValue> values = segmented.first_inputs(arguments);
    std::vector<std::vector<int>> moved;
    for (size_t s = 0; s < segmented.segments().size(); ++s) {
        const ParametersAs brought(model, segmented.parameters_of(segmented.segments()[s]),
                                   lowered);
        const std::vector<at::Tensor> before = copies_of(model);
        values = segmented.forward(s, values, {}, lowered.device).values;
        const std::set<int> written = written_buffers(segmented.segments()[s]);
        std::vector<int>& of_segment = moved.emplace_back();
        for (size_t b = 0; b < before.size(); ++b)
            if (written.count(static_cast<int>(b)) > 0 ||
                !is_equal(before[b], model.buffers()[b].tensor))
                of_segment.push_back(static_cast<int>(b));
    }
    return moved;
}

}  // namespace dslaunch::graph

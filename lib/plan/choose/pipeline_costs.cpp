#include "plan/choose/pipeline_costs.h"

#include <algorithm>

#include "base/check.h"

namespace dslaunch::plan {
namespace {

// Bytes of parameter P on each of the ranks that share states, without its gathered copy at
// stage 3.
Bytes state_bytes(const ModelInfo& model, int p, const StepPlanOptions& options) {
    const ParameterInfo& parameter = model.parameters[static_cast<size_t>(p)];
    const auto share = [&](int64_t bytes, int from_stage) {
        const int64_t ranks = options.stage >= from_stage ? options.shard_ranks() : 1;
        return Bytes{(bytes + ranks - 1) / ranks};
    };
    const int64_t numel = parameter.numel;
    Bytes bytes;
    if (!options.offload.parameters) bytes += share(numel * parameter.element_bytes, 3);
    if (!parameter.trainable) return bytes;
    bytes += share(numel * kFp32Bytes, 2);  // gradients
    const int64_t states = options.optimizer_states + (options.master ? 1 : 0);
    if (!options.offload.states)
        bytes += share((numel * states + options.tensor_states_of(p)) * kFp32Bytes, 1);
    return bytes;
}

SegmentCost segment_cost(const ModelInfo& model, size_t index, const StepPlanOptions& options,
                         const SegmentTimes& times) {
    const SegmentInfo& segment = model.segments[index];
    const Bytes inputs = index == 0 ? model.batch_bytes : model.segments[index - 1].output_bytes;
    SegmentCost cost;
    add_times(cost, times);
    cost.outputs = segment.output_bytes;
    if (!segment.backward) return cost;
    cost.backward_takes =
        Bytes{std::max<int64_t>(0, segment.backward_peak.value - segment.activation_bytes.value)};
    cost.activations = inputs;
    if (options.recompute_groups > 0) {
        cost.backward_input_s += times.forward_s;
        cost.backward_takes += segment.activation_bytes;
    } else {
        cost.activations += segment.activation_bytes;
    }
    // The boundary's tensors stay alive as a factor of the first weight gradient.
    const bool measured = segment.weight_half_bytes.value > 0;
    cost.kept_for_weight =
        inputs + (measured ? segment.weight_half_bytes : segment.activation_bytes);
    return cost;
}

}  // namespace

std::vector<SegmentTimes> times_from_flops(const ModelInfo& model, double flops_per_s,
                                           double memory_bytes_per_s) {
    DSL_CHECK(flops_per_s > 0, "{} FLOP/s", flops_per_s);
    std::vector<SegmentTimes> times;
    for (const SegmentInfo& segment : model.segments) {
        Bytes touched = segment.activation_bytes;
        for (const int p : segment.parameters)
            touched += Bytes{model.parameters[p].numel * model.parameters[p].element_bytes};
        const double forward_s = std::max(static_cast<double>(segment.forward_flops) / flops_per_s,
                                          seconds_at(touched, memory_bytes_per_s));
        const double backward_s = segment.backward ? forward_s : 0;
        times.push_back({forward_s, backward_s, backward_s});
    }
    return times;
}

StageRequest make_stage_request(const ModelInfo& model, const StepPlanOptions& options,
                                const std::vector<SegmentTimes>& times) {
    DSL_CHECK(times.size() == model.segments.size(), "times of {} segments, not of {}",
              times.size(), model.segments.size());
    StageRequest request;
    for (size_t s = 0; s < times.size(); ++s) {
        request.segments.push_back(segment_cost(model, s, options, times[s]));
        request.parameters.push_back(model.segments[s].parameters);
    }
    for (int p = 0; p < std::ssize(model.parameters); ++p)
        request.state_bytes.push_back(state_bytes(model, p, options));
    return request;
}

}  // namespace dslaunch::plan

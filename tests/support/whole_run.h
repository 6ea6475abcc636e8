// The reference of the segment tests: a model's lowered graph run as one piece, and the same model cut, with every gradient.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <vector>

#include "graph/compute_context.h"
#include "graph/segment.h"

namespace dslaunch::test {

struct RunResult {
    double loss = 0;
    std::map<std::string, at::Tensor> gradients;  // by parameter name; undefined ones are left out
};

inline void clear_gradients(const Model& model) {
    for (const ModelParameter& parameter : model.parameters()) at::Tensor(parameter.tensor).mutable_grad().reset();
}

inline RunResult collect(const Model& model, double loss) {
    RunResult result;
    result.loss = loss;
    for (const ModelParameter& parameter : model.parameters())
        if (parameter.tensor.grad().defined()) result.gradients[parameter.name] = parameter.tensor.grad().clone();
    return result;
}

// The model's own forward, as LibTorch runs it.
inline RunResult run_module(Model& model, const std::vector<c10::IValue>& arguments) {
    const ComputeContext context(true);
    clear_gradients(model);
    model.module().train();
    const at::Tensor loss = model.module().forward(arguments).toTensor();
    loss.backward();
    return collect(model, loss.item<double>());
}

// Segment by segment. RECOMPUTE: each segment keeps only its inputs and is run again before its backward.
inline RunResult run_segments(const SegmentedModel& segmented, const std::vector<c10::IValue>& arguments,
                              const DrawKey& key, bool recompute) {
    const ComputeContext context(true);
    clear_gradients(segmented.model());
    const size_t count = segmented.segments().size();
    std::vector<std::vector<c10::IValue>> inputs = {segmented.first_inputs(arguments)};
    std::vector<Boundary> boundaries;
    const auto buffers_of = [&](size_t k) {
        std::vector<at::Tensor> copies;
        for (const int buffer : segmented.segments()[k].buffers)
            copies.push_back(segmented.model().buffers()[static_cast<size_t>(buffer)].tensor.clone());
        return copies;
    };
    for (size_t k = 0; k < count; ++k) {
        boundaries.push_back(segmented.forward(k, inputs[k], key));
        inputs.push_back(boundaries[k].values);
        if (recompute) boundaries[k].producers.clear();
    }
    segmented.store_states(boundaries.back());
    const double loss = loss_of(boundaries.back());
    for (size_t k = count; k-- > 0;) {
        if (recompute) {
            const std::vector<at::Tensor> before = buffers_of(k);
            boundaries[k].producers = segmented.forward(k, inputs[k], key).producers;
            const at::NoGradGuard no_grad;
            for (size_t b = 0; b < before.size(); ++b)
                segmented.model().buffers()[static_cast<size_t>(segmented.segments()[k].buffers[b])].tensor.copy_(before[b]);
        }
        if (k + 1 == count) {
            SegmentedModel::backward_loss(boundaries[k], 1.0);
        } else {
            SegmentedModel::backward(boundaries[k]);
        }
    }
    return collect(segmented.model(), loss);
}

// "" when equal bit for bit, else what differs.
inline std::string difference(const RunResult& a, const RunResult& b) {
    if (!(a.loss == b.loss)) return fmt::format("loss {} against {}", a.loss, b.loss);
    if (a.gradients.size() != b.gradients.size())
        return fmt::format("{} gradients against {}", a.gradients.size(), b.gradients.size());
    for (const auto& [name, gradient] : a.gradients) {
        const auto found = b.gradients.find(name);
        if (found == b.gradients.end()) return "no gradient for " + name;
        if (!at::equal(gradient, found->second))
            return fmt::format("gradient of {} differs by {}", name,
                               (gradient - found->second).abs().max().item<double>());
    }
    return "";
}

}  // namespace dslaunch::test

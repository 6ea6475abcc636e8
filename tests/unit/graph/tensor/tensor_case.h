// A model with its graph and a batch, in fp64. Tests split the model, and check it with ranks that
// are threads.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "graph/sharing/thread_group.h"
#include "graph/tensor/tensor_check.h"
#include "support/fixtures.h"
#include "support/script_module.h"

namespace dslaunch::test {

using namespace config;
using namespace graph;
using namespace plan;

inline TensorRules ranks(int size) {
    TensorRules rules;
    rules.size = size;
    return rules;
}

// The fixtures whose layers can be split, each with the number of these layers.
inline const std::vector<std::pair<const char*, int64_t>> kLayersOf = {
    {"gpt", 3}, {"gpt-tied", 2}, {"gpt-dropout", 3}, {"llama", 2}, {"qwen2", 2}, {"gpt2", 2}};

inline int64_t count_of(const TensorPlan& plan, TensorCollectiveKind kind) {
    return std::ranges::count(plan.collectives, kind, &TensorCollective::kind);
}

struct TensorCase {
    Model model;
    LoweredGraph lowered;
    GraphInputs inputs;

    static TensorCase of(Model model, const SegmentedModel& segmented,
                         std::vector<c10::IValue> arguments) {
        GraphInputs inputs = inputs_in_double(model, segmented.first_inputs(std::move(arguments)));
        inputs.key = {7, 3, 5};
        return {std::move(model), in_double(segmented.lowered()), std::move(inputs)};
    }
    // Returns the case of a fixture of tests/fixtures, with the fixture's first batch.
    static TensorCase fixture(const std::string& name) {
        Fixture made = Fixture::load(name);
        const SegmentedModel segmented = made.cut(1);
        std::vector<c10::IValue> batch = made.batch(segmented);
        return of(std::move(made.model), segmented, std::move(batch));
    }
    // Returns the case of TorchScript TEXT. The parameters have the given SIZES and small values.
    // The batch is [2, 6] tokens below 12, with targets; the third target does not count.
    using NamedSizes = std::vector<std::pair<std::string, std::vector<int64_t>>>;
    static TensorCase script(const std::string& text, const NamedSizes& sizes,
                             const LossConfig& loss = {}) {
        NamedTensors tensors;
        double phase = 0;
        for (const auto& [name, shape] : sizes) {
            int64_t numel = 1;
            for (const int64_t size : shape) numel *= size;
            tensors.emplace_back(
                name, (at::arange(numel, at::kFloat) * 1.7 + ++phase).sin().mul(0.5).view(shape));
        }
        return of_module(script_model(text, tensors), loss);
    }
    // Returns the case of MODEL, with the batch that script() explains.
    static TensorCase of_module(Model model, const LossConfig& loss = {}) {
        LowerOptions options;
        options.loss = loss;
        const SegmentedModel segmented = SegmentedModel::make(model, options, 1);
        const at::Tensor tokens = (at::arange(12, at::kLong) * 7).remainder(12).view({2, 6});
        at::Tensor targets = (at::arange(12, at::kLong) * 5 + 1).remainder(12).view({2, 6});
        targets[0][2] = -100;
        return of(std::move(model), segmented, {tokens, targets});
    }

    [[nodiscard]] TensorModel split(const TensorRules& rules) const {
        return make_tensor_parallel(model, lowered, inputs, rules);
    }
    [[nodiscard]] TensorReference whole() const { return run_reference(model, lowered, inputs); }
    // Checks TENSOR. Throws if it does not compute the same as the model.
    TensorCheck check(const TensorModel& tensor, const TensorReference& reference) const {
        TensorCheck result;
        run_tensor_ranks(tensor.plan.size, [&](TensorGroup& group) {
            const TensorCheck mine =
                check_tensor_model({model, lowered, tensor, inputs, reference}, group);
            if (group.rank() == 0) result = mine;
        });
        return result;
    }
    TensorPlan split_and_check(const TensorRules& rules) const {
        TensorModel tensor = split(rules);
        static_cast<void>(check(tensor, whole()));
        return std::move(tensor.plan);
    }
};

inline const TensorParameter& named(const TensorPlan& plan, const std::string& name) {
    for (const TensorParameter& parameter : plan.parameters)
        if (parameter.name == name) return parameter;
    throw std::out_of_range(name);
}

}  // namespace dslaunch::test

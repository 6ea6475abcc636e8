// Models made tensor parallel against themselves whole: loss and every gradient, ranks as threads.
#include <ATen/ATen.h>

#include "base/error.h"
#include "graph/tensor/tensor_check.h"
#include "graph/tensor/thread_group.h"
#include "support/catch.h"
#include "support/fixtures.h"
#include "support/script_module.h"

namespace dslaunch {
namespace {

using test::Fixture;

// A model, its graph in fp64 and a batch.
struct Case {
    Model model;
    LoweredGraph lowered;
    GraphInputs inputs;

    static Case of(Model model, const LowerOptions& options,
                   const std::function<std::vector<c10::IValue>(const SegmentedModel&)>& batch) {
        const SegmentedModel segmented = SegmentedModel::make(model, options, 1);
        GraphInputs inputs = inputs_in_double(model, segmented.first_inputs(batch(segmented)));
        inputs.key = {7, 3, 5};
        LoweredGraph lowered = in_double(segmented.lowered());
        return {std::move(model), std::move(lowered), std::move(inputs)};
    }
    static Case fixture(const std::string& name) {
        Fixture made = Fixture::load(name);
        const LowerOptions options = made.options;
        const SegmentedModel segmented = made.cut(1);
        GraphInputs inputs =
            inputs_in_double(made.model, segmented.first_inputs(made.batch(segmented)));
        inputs.key = {7, 3, 5};
        LoweredGraph lowered = in_double(segmented.lowered());
        return {std::move(made.model), std::move(lowered), std::move(inputs)};
    }
    [[nodiscard]] TensorModel split(const TensorRules& rules) const {
        return make_tensor_parallel(model, lowered, inputs, rules);
    }
    [[nodiscard]] TensorModel split(int size) const {
        TensorRules rules;
        rules.size = size;
        return split(rules);
    }
    [[nodiscard]] TensorCheck check(const TensorModel& tensor) const {
        const TensorReference reference = run_reference(model, lowered, inputs);
        TensorCheck result;
        run_tensor_ranks(tensor.plan.size, [&](TensorGroup& group) {
            const TensorCheck mine =
                check_tensor_model({model, lowered, tensor, inputs, reference}, group);
            if (group.rank() == 0) result = mine;
        });
        return result;
    }
};

}  // namespace

TEST_CASE("fixture models split among ranks compute what they compute whole") {
    for (const char* name : {"gpt", "llama", "qwen2", "gpt2"}) {
        const Case made = Case::fixture(name);
        for (const int size : {1, 2, 4}) {
            INFO(name << " on " << size);
            const TensorModel tensor = made.split(size);
            if (size != 1) WARN(tensor_plan_text(tensor.plan));
            const TensorCheck check = made.check(tensor);
            WARN(fmt::format("{} {}: loss {} off {} at {} bound {}", name, size, check.loss,
                             check.difference, check.where, check.bound));
        }
    }
}

}  // namespace dslaunch

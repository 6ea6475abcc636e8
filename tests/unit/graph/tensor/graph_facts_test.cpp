// A whole graph, run on the caller's values: buffers are copied, and values that shared memory
// still share it.
#include "graph/tensor/graph_facts.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "graph/lower/lower.h"
#include "support/catch.h"
#include "support/script_module.h"

namespace dslaunch {

TEST_CASE("a write to a buffer is seen in a buffer that is a view of it") {
    const at::Tensor all = at::zeros({2, 4});
    torch::jit::Module module("Views");
    module.register_parameter("weight", at::ones({4}).set_requires_grad(true), false);
    module.register_buffer("all", all);
    module.register_buffer("first", all.select(0, 0));
    module.define(R"(
def forward(self, x):
    self.all.add_(0.5)
    return (x * self.weight * self.first).sum()
)");
    graph::Model model = graph::Model::adopt_untied(module);
    const graph::LoweredGraph lowered = graph::lower(model, {});
    graph::GraphInputs inputs;
    inputs.arguments = {at::ones({4})};
    for (const graph::ModelParameter& parameter : model.parameters())
        inputs.parameters.push_back(parameter.tensor);
    for (const graph::ModelBuffer& buffer : model.buffers())
        inputs.buffers.push_back(buffer.tensor);
    const graph::WholeGraph whole(model, lowered, {});
    for (int times = 0; times < 2; ++times)
        CHECK(whole.run(inputs, {true, nullptr}).front().toTensor().item<double>() == 2);
    CHECK(all.sum().item<double>() == 0);
}

}  // namespace dslaunch

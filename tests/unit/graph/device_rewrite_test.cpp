// A model on another device. Without a GPU the meta device stands in: it has no memory, so a tensor
// that was left on the CPU shows by its device.
#include "graph/lower/device_rewrite.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/serialization/import.h>

#include "graph/segment/compute_context.h"
#include "support/catch.h"
#include "support/fixtures.h"
#include "support/script_module.h"

namespace dslaunch {

using namespace graph;
namespace {

const c10::Device kMeta(c10::kMeta);

int64_t tensors_on(const torch::jit::Block& block, c10::Device device) {
    int64_t found = 0;
    for (const torch::jit::Node* node : block.nodes()) {
        for (const torch::jit::Block* inner : node->blocks()) found += tensors_on(*inner, device);
        if (node->kind() != c10::prim::Constant) continue;
        const auto value = torch::jit::toIValue(node->output());
        if (!value || value->isNone()) continue;
        (void)map_tensors(*value, [&](const at::Tensor& tensor) {
            found += tensor.defined() && tensor.device() == device ? 1 : 0;
            return tensor;
        });
    }
    return found;
}

}  // namespace

TEST_CASE("no tensor constant of any fixture's graph is left on the tracer's device") {
    int64_t moved = 0;
    for (const std::string& name : test::fixture_names()) {
        INFO(name);
        test::Fixture fixture = test::Fixture::load(name);
        const LoweredGraph here = lower(fixture.model, fixture.options);
        const int64_t constants = tensors_on(*here.graph->block(), c10::kCPU);
        rewrite_devices(*here.graph->block(), kMeta);
        CHECK(tensors_on(*here.graph->block(), c10::kCPU) == 0);
        CHECK(tensors_on(*here.graph->block(), kMeta) == constants);
        moved += constants;
    }
    CHECK(moved > 0);
}

TEST_CASE("a graph whose constants were moved computes on their device") {
    // The mask becomes a constant of the graph. If it stayed on the CPU, the product would fail or
    // move to the CPU.
    const std::string text =
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    mask = torch.triu(torch.ones([4, 4], device=torch.device('cpu')), 1)\n"
        "    return torch.matmul(x, mask).sum()\n";
    Model model = test::script_model(text, {{"w", test::ramp(4)}});
    LowerOptions options;
    options.device = kMeta;
    const SegmentedModel cut = SegmentedModel::make(model, options, 1);
    const ComputeContext context(false);
    const std::vector<c10::IValue> batch = on_device({at::ones({2, 4})}, kMeta);
    CHECK(batch[0].toTensor().device() == kMeta);
    const Boundary last = cut.forward(0, batch, {});
    CHECK(loss_tensor(last).device() == kMeta);
}

TEST_CASE("tensors in containers reach the device, what is there already is the same object") {
    const at::Tensor here = at::ones({2});
    c10::List<at::Tensor> list;
    list.push_back(here);
    const std::vector<c10::IValue> values = {list, 3, here, c10::IValue()};
    const std::vector<c10::IValue> moved = on_device(values, kMeta);
    CHECK(moved[0].toTensorList().get(0).device() == kMeta);
    CHECK(moved[1].toInt() == 3);
    CHECK(moved[3].isNone());
    CHECK(on_device(values, c10::kCPU)[2].toTensor().is_same(here));
}

TEST_CASE("a model that is where it should be stays as it is") {
    test::Fixture fixture = test::Fixture::load("tied-frozen-unused");
    std::vector<const void*> before;
    for (const ModelParameter& parameter : fixture.model.parameters())
        before.push_back(parameter.tensor.const_data_ptr());
    move_to_device(fixture.model, c10::kCPU);
    for (size_t i = 0; i < before.size(); ++i)
        CHECK(fixture.model.parameters()[i].tensor.const_data_ptr() == before[i]);
}

TEST_CASE("only a graph with a branch, a loop or a module call has control flow") {
    const auto flows = [](const std::string& text) {
        Model model = test::script_model(text, {{"w", test::ramp(4)}});
        return has_control_flow(lower(model, {}));
    };
    CHECK_FALSE(flows("def forward(self, x: Tensor) -> Tensor:\n    return (x * self.w).sum()\n"));
    CHECK(
        flows("def forward(self, x: Tensor) -> Tensor:\n"
              "    if bool(x.sum() > 0):\n"
              "        x = x * self.w\n"
              "    return x.sum()\n"));
    CHECK(
        flows("def forward(self, x: Tensor) -> Tensor:\n"
              "    for i in range(x.size(0)):\n"
              "        x = x * self.w\n"
              "    return x.sum()\n"));
}

}  // namespace dslaunch

// Text from models on a test device. Its tokens must be the host's tokens.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>

#include "graph/lower/device_rewrite.h"
#include "graph/models/models.h"
#include "graph/models/text_model.h"
#include "support/catch.h"
#include "support/device/test_device.h"

namespace dslaunch {

using namespace graph;

namespace {

std::vector<int64_t> greedy(const torch::jit::Module& module, at::Device device,
                            std::vector<int64_t> prompt) {
    if (!device.is_cpu()) rewrite_methods(module, device);
    TextModel model(module, device, 0);
    std::vector<int64_t> made;
    for (int i = 0; i < 6; ++i) {
        made.push_back(model.next_logits(prompt).argmax().item<int64_t>());
        prompt.push_back(made.back());
    }
    return made;
}

}  // namespace

TEST_CASE("a model on a device makes the tokens that it makes on the host") {
    at::set_num_threads(1);
    test::TestDevice device(0, 3);
    torch::jit::Module gpt =
        make_gpt({.vocab = 13, .width = 8, .heads = 2, .layers = 2, .context = 4});
    for (const auto& parameter : gpt.parameters()) parameter.detach().mul_(20);
    CHECK(greedy(gpt.deepcopy(), device.device(), {1, 2, 3}) == greedy(gpt, at::kCPU, {1, 2, 3}));
}

// A tracer writes its own device into the graph.
TEST_CASE("devices in a model's methods become the device that it runs on") {
    test::TestDevice device(1, 4);
    torch::jit::Module module("baked");
    module.register_attribute("training", c10::BoolType::get(), true);
    module.define(
        "def forward(self, tokens):\n"
        "    table = torch.eye(5, device=torch.device('cpu')).roll(1, 1)\n"
        "    return torch.embedding(table, tokens)\n");
    CHECK(greedy(module, device.device(), {3}) == std::vector<int64_t>{4, 0, 1, 2, 3, 4});
}

}  // namespace dslaunch

// A model whose layers share a buffer is trained in stages. The copies of all stages must stay
// equal.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "fixture_runs.h"
#include "support/script_module.h"
#include "support/write_safetensors.h"

namespace dslaunch::test {

using namespace storage;
namespace {

// Returns a model of three layers that share the buffers `scale` and `passes`. The first and the
// last layer add ADDED to `passes`.
torch::jit::Module layers(const std::string& added) {
    const std::string layer = "    h = torch.tanh(torch.matmul(h, self.%)) * self.scale\n";
    std::string text = "def forward(self, x: Tensor, y: Tensor) -> Tensor:\n    h = x\n";
    for (const char* weight : {"a", "b", "c"}) {
        std::string line = layer;
        line.replace(line.find('%'), 1, weight);
        text += line;
        if (*weight != 'b') text += "    self.passes.add_(" + added + ")\n";
    }
    text += "    return ((h - y) ** 2).mean() + self.passes.sum() * 0\n";
    NamedTensors weights;
    for (const char* name : {"a", "b", "c"}) weights.emplace_back(name, ramp(64).view({8, 8}));
    return script_module(text, weights, {{"passes", at::zeros({4})}, {"scale", at::full({}, 0.5)}});
}

TrainResult train_in_stages(const TemporaryFolder& folder, const std::string& added) {
    const std::string archive = folder.path() + "/shared.pt";
    layers(added).save(archive);
    const std::vector<float> values(8 * 8, 0.25F);
    const auto bytes = std::as_bytes(std::span(values));
    write_safetensors(folder.path() + "/rows.safetensors",
                      std::vector<SafetensorsEntry>{{"x", DType::kF32, {8, 8}, bytes},
                                                    {"y", DType::kF32, {8, 8}, bytes}});
    const Json config = {{"train_micro_batch_size_per_gpu", 2},
                         {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}},
                         {"dslaunch",
                          {{"steps", 2},
                           {"data", {{"train", folder.path() + "/rows.safetensors"}}},
                           {"pipeline", {{"stages", 2}}}}}};
    return train(folder, {"--num_gpus", "2"}, archive, config);
}

}  // namespace

TEST_CASE("a buffer that two stages read and one changes is refused by name") {
    const TemporaryFolder folder;
    const TrainResult result = train_in_stages(folder, "1");
    INFO(result.err);
    CHECK(result.code == static_cast<int>(ExitCode::kConfig));
    CHECK(result.err.find("both read the buffer passes, which stage 0 changes in its forward") !=
          std::string::npos);
    CHECK(result.err.find("buffer scale") == std::string::npos);
}

TEST_CASE("buffers that two stages read and none changes are no reason to refuse a model") {
    const TemporaryFolder folder;
    const TrainResult result = train_in_stages(folder, "0");
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(result.losses().size() == 2);
}

}  // namespace dslaunch::test

// Facts about a model that one forward pass gives: numbers that do not depend on the cuts. Also
// FLOPs and times of a step by module, compared with closed forms and with the counts of PyTorch
// and DeepSpeed.
#include "graph/measure/measure.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <fstream>
#include <map>
#include <set>
#include <string>

#include "graph/measure/module_profiler.h"
#include "graph/measure/trial.h"
#include "graph/segment/compute_context.h"
#include "support/catch.h"
#include "support/fixtures.h"
#include "support/script_module.h"

namespace dslaunch {

using namespace graph;
using namespace plan;

namespace {
const std::set<std::string> kPictureModels = {"convnet", "exported-convnet", "image-text", "mlp",
                                              "views-inplace"};
}

TEST_CASE("classes of the loss and work of a model are the same however it is cut") {
    at::set_num_threads(1);
    for (const std::string& name : test::fixture_names()) {
        test::Fixture fixture = test::Fixture::load(name);
        // Pictures are sorted into ten classes; text has its 128 tokens (fixtures/README.md).
        const bool pictures = kPictureModels.count(name) == 1;
        const int64_t classes = pictures ? 10 : 128;
        const SegmentedModel one = fixture.cut(1);
        const auto arguments = fixture.batch(one);
        const int64_t flops = measure(one, arguments).forward_flops();
        CHECK(flops > 0);
        for (const int64_t count : test::segment_counts(one.cut_places())) {
            if (count > 13) break;
            INFO(name << " in " << count << " segments");
            const ModelInfo info = measure(fixture.cut(count), arguments);
            CHECK(info.loss_classes == classes);
            CHECK(info.forward_flops() == flops);
        }
    }
}

TEST_CASE("the peak of a backward has the dense gradient of an embedding, and no trace stays") {
    at::set_num_threads(1);
    Model model = test::script_model(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    y = torch.embedding(self.w, x)\n    return torch.exp(y).sum()\n",
        {{"w", at::zeros({1000, 64})}});
    const SegmentedModel segmented = SegmentedModel::make(model, {}, 2);
    REQUIRE(segmented.segments().size() == 2);
    const int64_t rows = 6 * 64 * 4;
    const ModelInfo info = measure(segmented, {at::arange(6, at::kLong)});
    const SegmentInfo& embedding = info.segments[0];
    const SegmentInfo& loss = info.segments[1];
    CHECK(embedding.output_bytes == Bytes{rows});
    CHECK(embedding.forward_peak == Bytes{rows});
    // The rows, their gradient, and the table's gradient; a scalar or an index may be added.
    const int64_t least = 2 * rows + 1000 * 64 * 4;
    CHECK(embedding.backward_peak.value >= least);
    CHECK(embedding.backward_peak.value <= least + 512);
    // Forward: the exponential, which is kept, and the sum. Backward: the sum's gradient, spread
    // over the rows without memory of its own, and the rows' gradient.
    CHECK(loss.forward_peak.value >= rows);
    CHECK(loss.forward_peak.value <= rows + 64);
    CHECK(loss.backward_peak.value >= 2 * rows);
    CHECK(loss.backward_peak.value <= 2 * rows + 64);
    CHECK_FALSE(model.parameters()[0].tensor.grad().defined());
}

TEST_CASE("what is kept between the halves of a backward is what the weights wait with") {
    at::set_num_threads(1);
    Model model = test::script_model(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    h = torch.tanh(torch.matmul(x, self.a))\n"
        "    y = torch.tanh(torch.tanh(torch.tanh(torch.matmul(h, self.b))))\n"
        "    return y.sum()\n",
        {{"a", at::ones({64, 8})}, {"b", at::ones({8, 64})}});
    const SegmentedModel segmented = SegmentedModel::make(model, {}, 2);
    REQUIRE(segmented.segments().size() == 2);
    constexpr int64_t kNarrow = 6 * 8 * 4;
    constexpr int64_t kWide = 6 * 64 * 4;
    const std::vector<c10::IValue> arguments = {at::ones({6, 64})};
    CHECK(measure(segmented, arguments).segments[1].weight_half_bytes == Bytes{});
    const ModelInfo info = measure(segmented, arguments, /*split_backward=*/true);
    // The product keeps its operand, unless that is the segment's input, and the gradient that it
    // received. The whole backward keeps three times as much.
    const SegmentInfo& last = info.segments[1];
    CHECK(last.activation_bytes.value >= 3 * kWide);
    CHECK(last.weight_half_bytes.value >= kWide);
    CHECK(last.weight_half_bytes.value <= kWide + kNarrow + 512);
    // The other product keeps its operand, the batch, and the gradient that it received.
    const SegmentInfo& first = info.segments[0];
    CHECK(first.weight_half_bytes.value >= kNarrow);
    CHECK(first.weight_half_bytes.value <= 2 * kNarrow + 512);
    for (const ModelParameter& parameter : model.parameters())
        CHECK_FALSE(parameter.tensor.grad().defined());
}

TEST_CASE("what forward returns is known as a loss or as none before the first step") {
    struct Row {
        const char* returned;
        int64_t numel;
        bool trains;
    };
    const Row rows[] = {{"y.mean()", 1, true},           {"y.mean().reshape(1)", 1, true},
                        {"y.mean(1)", 6, true},          {"y.mean().detach()", 1, false},
                        {"y.argmax(1).sum()", 1, false}, {"(y > 0.5).float().mean()", 1, false},
                        {"x.mean()", 1, false}};
    for (const Row& row : rows) {
        INFO(row.returned);
        Model model =
            test::script_model(std::string("def forward(self, x: Tensor) -> Tensor:\n"
                                           "    y = torch.matmul(x, self.w)\n    return ") +
                                   row.returned + "\n",
                               {{"w", test::ramp(12).reshape({4, 3})}});
        LossFacts loss;
        static_cast<void>(
            measure(SegmentedModel::make(model, {}, 1), {at::ones({6, 4})}, false, &loss));
        CHECK(loss.numel == row.numel);
        CHECK(loss.trains == row.trains);
    }
}

namespace {

// Runs the profiler over one forward and backward of SEGMENTED on ARGUMENTS.
std::vector<plan::ModuleCost> profile(SegmentedModel& segmented,
                                      const std::vector<IValue>& arguments) {
    const ComputeContext context(true, at::kFloat, c10::kCPU);
    const KeptBuffers buffers(segmented.model(), segmented.lowered());
    const ModuleProfiler profiler(segmented);
    std::vector<std::vector<IValue>> inputs = {segmented.first_inputs(arguments)};
    std::vector<Boundary> boundaries;
    for (size_t s = 0; s < segmented.segments().size(); ++s) {
        boundaries.push_back(segmented.forward(s, inputs.back(), {}));
        inputs.push_back(boundaries.back().values);
    }
    for (size_t s = boundaries.size(); s-- > 0;) {
        const std::vector<int> parameters = segmented.parameters_of(segmented.segments()[s]);
        TrialBackward{segmented.model(), parameters, s + 1 == boundaries.size(), inputs[s], {}}.run(
            std::move(boundaries[s]));
    }
    return profiler.costs();
}

// Returns the FLOPs of each module with everything inside it. The model has the path "".
std::map<std::string, int64_t> flops_with_inner(const std::vector<plan::ModuleCost>& costs) {
    std::map<std::string, int64_t> flops;
    for (const plan::ModuleCost& cost : costs) {
        std::string path = cost.path;
        while (true) {
            flops[path] += cost.forward_flops;
            if (path.empty()) break;
            const size_t dot = path.rfind('.');
            path = dot == std::string::npos ? "" : path.substr(0, dot);
        }
    }
    return flops;
}

int64_t flops_of(const std::string& body, const test::NamedTensors& parameters, at::Tensor x) {
    Model model =
        test::script_model("def forward(self, x: Tensor) -> Tensor:\n" + body, parameters);
    SegmentedModel segmented = SegmentedModel::make(model, {}, 1);
    return flops_with_inner(profile(segmented, {std::move(x)})).at("");
}

}  // namespace

TEST_CASE("products, attention and convolutions have the FLOPs of their closed forms") {
    at::set_num_threads(1);
    // 2 m n k, with and without a bias, in batches too.
    CHECK(flops_of("    return torch.linear(x, self.w).sum()\n", {{"w", at::ones({5, 7})}},
                   at::ones({3, 7})) == 2 * 3 * 5 * 7);
    CHECK(flops_of("    return torch.linear(x, self.w, self.b).sum()\n",
                   {{"w", at::ones({5, 7})}, {"b", at::ones({5})}},
                   at::ones({2, 3, 7})) == 2 * 2 * 3 * 5 * 7);
    CHECK(flops_of("    return torch.matmul(x, self.w).sum()\n", {{"w", at::ones({4, 7, 5})}},
                   at::ones({4, 3, 7})) == 2 * 4 * 3 * 5 * 7);
    // Two products of T x S x d for each of B x H heads.
    CHECK(flops_of("    q = x * self.w\n"
                   "    return torch.scaled_dot_product_attention(q, x, x).sum()\n",
                   {{"w", at::ones({1})}}, at::ones({2, 3, 6, 8})) == 4 * 2 * 3 * 6 * 6 * 8);
    // 2 FLOPs for each weight of an output element: 6 output channels, 4 x 4 places, 3 x 3 x 2
    // weights.
    CHECK(flops_of("    return torch.conv2d(x, self.w).sum()\n", {{"w", at::ones({6, 2, 3, 3})}},
                   at::ones({1, 2, 6, 6})) == 2 * 6 * 16 * 18);
    // Each group sees only its own channels.
    CHECK(flops_of("    return torch.conv2d(x, self.w, None, [1, 1], [0, 0], [1, 1], 2).sum()\n",
                   {{"w", at::ones({6, 1, 3, 3})}}, at::ones({1, 2, 6, 6})) == 2 * 6 * 16 * 9);
    // Transposed: each of the 6 x 6 x 2 inputs goes into 5 channels of 3 x 3.
    CHECK(flops_of("    return torch.conv_transpose2d(x, self.w).sum()\n",
                   {{"w", at::ones({2, 5, 3, 3})}}, at::ones({1, 2, 6, 6})) == 2 * 36 * 2 * 5 * 9);
}

TEST_CASE("each module of a GPT and a CNN has PyTorch's FLOPs and DeepSpeed's MACs") {
    at::set_num_threads(1);
    std::ifstream file(test::fixture_path("flops/peers.json"));
    const nlohmann::json peers = nlohmann::json::parse(file);
    for (const char* name : {"gpt", "convnet", "exported-convnet"}) {
        const std::string peer = std::string(name) == "gpt" ? "gpt" : "convnet";
        test::Fixture fixture = test::Fixture::load(name);
        for (const int64_t segments : {1, 3}) {
            SegmentedModel segmented = fixture.cut(segments);
            auto ours = flops_with_inner(profile(segmented, fixture.batch(segmented)));
            for (const auto& [path, flops] : peers.at(peer).at("torch_flops").items()) {
                INFO(name << " in " << segments << " segments, module " << path);
                CHECK(ours[path] == flops.get<int64_t>());
                CHECK(ours[path] ==
                      2 * peers.at(peer).at("deepspeed_macs").at(path).get<int64_t>());
            }
        }
    }
}

TEST_CASE("a backward's time belongs to the module of its forward, and codes are given back") {
    at::set_num_threads(1);
    test::Fixture fixture = test::Fixture::load("gpt");
    SegmentedModel segmented = fixture.cut(2);
    const std::vector<std::shared_ptr<Code>> before = {segmented.segments()[0].code,
                                                       segmented.segments()[1].code};
    const auto costs = profile(segmented, fixture.batch(segmented));
    CHECK(segmented.segments()[0].code == before[0]);
    CHECK(segmented.segments()[1].code == before[1]);
    std::map<std::string, plan::ModuleCost> by_path;
    for (const plan::ModuleCost& cost : costs) by_path[cost.path] = cost;
    for (const char* path : {"blocks.0.qkv", "blocks.1.fc", "blocks.2.out", "ln_f", "head"}) {
        INFO(path);
        REQUIRE(by_path.contains(path));
        CHECK(by_path[path].forward > Duration{0});
        CHECK(by_path[path].backward > Duration{0});
        CHECK(by_path[path].recompute == Duration{0});
    }
}

TEST_CASE("a forward within a recompute scope counts as recompute and adds no FLOPs") {
    at::set_num_threads(1);
    test::Fixture fixture = test::Fixture::load("gpt");
    SegmentedModel segmented = fixture.cut(1);
    const auto arguments = fixture.batch(segmented);
    const ComputeContext context(true, at::kFloat, c10::kCPU);
    const ModuleProfiler profiler(segmented);
    static_cast<void>(segmented.forward(0, segmented.first_inputs(arguments), {}));
    const auto once = flops_with_inner(profiler.costs());
    {
        const ModuleProfiler::RecomputeScope recomputes;
        static_cast<void>(segmented.forward(0, segmented.first_inputs(arguments), {}));
    }
    CHECK(flops_with_inner(profiler.costs()) == once);
    for (const plan::ModuleCost& cost : profiler.costs())
        if (cost.path == "head") CHECK(cost.recompute > Duration{0});
}

}  // namespace dslaunch

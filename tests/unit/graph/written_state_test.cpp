// Parameters, constants and arguments that forward writes: some become buffers, some are written
// before a step, some stay in the graph. A trial pass leaves all of them unchanged.
#include "graph/writes/written_state.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include "base/error.h"
#include "graph/lower/lower.h"
#include "graph/measure/measure.h"
#include "graph/segment/compute_context.h"
#include "graph/segment/new_values.h"
#include "graph/segment/segmented_model.h"
#include "graph/writes/input_aliases.h"
#include "support/catch.h"
#include "support/script_module.h"

namespace dslaunch {

using namespace graph;
namespace {

using test::ramp;
using test::script_model;
using test::script_module;
using test::wave;

const std::string kHead = "def forward(self, x: Tensor) -> Tensor:\n";

Model two_weights(const std::string& body) {
    return script_model(kHead + body, {{"v", wave({4, 4}, 2)}, {"w", wave({4, 4}, 1)}});
}

std::vector<std::string> names_of(const Model& model, const std::vector<int>& parameters) {
    std::vector<std::string> names;
    for (const int parameter : parameters) names.push_back(model.parameters()[parameter].name);
    return names;
}

std::vector<at::Tensor> values_of(const Model& model) {
    std::vector<at::Tensor> values;
    for (const ModelParameter& parameter : model.parameters())
        values.push_back(parameter.tensor.detach().clone());
    for (const ModelBuffer& buffer : model.buffers()) values.push_back(buffer.tensor.clone());
    return values;
}

}  // namespace

TEST_CASE("values that follow from parameters alone leave the graph, which reads them written") {
    struct Row {
        const char* body;
        std::vector<std::vector<std::string>> written;  // by group
        bool is_projection;
    };
    const Row rows[] = {
        {"    self.w.detach().clamp_(-0.5, 0.5)\n    return (x @ self.w @ self.v).sum()\n",
         {{"w"}},
         true},
        {"    self.w.detach().mul_(0.5)\n    return (x @ self.w @ self.v).sum()\n", {{"w"}}, false},
        // A decay that looks like rounding in fp32.
        {"    self.w.detach().mul_(0.9999999)\n    return (x @ self.w @ self.v).sum()\n",
         {{"w"}},
         false},
        {"    self.w.detach().copy_((self.w / self.w.norm()).float())\n"
         "    return (x @ self.w @ self.v).sum()\n",
         {{"w"}},
         true},
        {"    self.w.detach().copy_(self.v / self.v.norm())\n    return (x @ self.w @ "
         "self.v).sum()\n",
         {{"w"}},
         true},
        {"    self.w.detach()[0].zero_()\n    return (x @ self.w @ self.v).sum()\n", {{"w"}}, true},
        // Each group starts from the values before any group.
        {"    self.v.detach().clamp_(max=0.25)\n    self.w.detach().copy_(self.v)\n"
         "    return (x @ self.w @ self.v).sum()\n",
         {{"v"}, {"w"}},
         true},
        // A branch that depends only on trained values.
        {"    if bool(self.w.detach().norm() > 1.0):\n        self.w.detach().div_(self.w.norm())\n"
         "    return (x @ self.w @ self.v).sum()\n",
         {{"w"}},
         true},
    };
    for (const Row& row : rows) {
        INFO(row.body);
        Model model = two_weights(row.body);
        const LoweredGraph lowered = lower(model, {});
        std::vector<std::vector<std::string>> written;
        bool projects = true;
        for (const ParameterWrites& writes : lowered.writes) {
            written.push_back(names_of(model, writes.written));
            projects = projects && is_projection(model, writes);
        }
        CHECK(written == row.written);
        CHECK(projects == row.is_projection);
        CHECK(lowered.in_place.empty());
        CHECK(find_written_inputs(*lowered.graph).empty());
    }
}

TEST_CASE("new values are those that forward writes, and nothing is written meanwhile") {
    const std::string body =
        "    self.v.detach().clamp_(max=0.25)\n    self.w.detach().copy_(self.v * 2.0)\n"
        "    return (x @ self.w @ self.v).sum()\n";
    Model model = two_weights(body);
    const std::vector<at::Tensor> before = values_of(model);
    const SegmentedModel segmented = SegmentedModel::make(model, {}, 1);
    static_cast<void>(measure(segmented, {at::ones({2, 4})}));
    const std::vector<at::Tensor> after = values_of(model);
    for (size_t i = 0; i < before.size(); ++i) CHECK(at::equal(before[i], after[i]));

    // LibTorch runs the module itself.
    torch::jit::Module eager =
        script_module(kHead + body, {{"v", wave({4, 4}, 2)}, {"w", wave({4, 4}, 1)}});
    static_cast<void>(eager.forward({at::ones({2, 4})}));
    for (const ParameterWrites& writes : segmented.lowered().writes) {
        std::vector<at::Tensor> read;
        for (const int parameter : writes.parameters)
            read.push_back(model.parameters()[parameter].tensor.detach());
        const std::vector<at::Tensor> values = new_values(model, writes, read);
        const std::string name = names_of(model, writes.written).front();
        CHECK(at::equal(values.front(), eager.attr(name).toTensor().detach()));
    }
}

TEST_CASE("what the batch decides, and what is read before it is written, stays in the graph") {
    struct Row {
        const char* body;
        const char* why;
    };
    const Row rows[] = {
        {"    self.w.detach().mul_(x.mean())\n    return (x @ self.w @ self.v).sum()\n",
         "with values that it computes from the batch"},
        {"    h = x @ self.w\n    self.w.detach().clamp_(-0.5, 0.5)\n"
         "    return (h @ self.w @ self.v).sum()\n",
         "after reading it"},
        {"    n = self.w.detach().norm()\n    self.w.detach().div_(n)\n"
         "    return (x @ self.w @ self.v).sum() * n\n",
         "after reading it"},
        {"    self.w.detach().normal_()\n    return (x @ self.w @ self.v).sum()\n",
         "with random numbers"},
    };
    for (const Row& row : rows) {
        INFO(row.body);
        Model model = two_weights(row.body);
        const SegmentedModel segmented = SegmentedModel::make(model, {}, 1);
        const LoweredGraph& lowered = segmented.lowered();
        CHECK(lowered.writes.empty());
        REQUIRE(lowered.in_place.size() == 1);
        CHECK(model.parameters()[lowered.in_place[0].parameter].name == "w");
        CHECK(lowered.in_place[0].why == row.why);
        const std::vector<at::Tensor> before = values_of(model);
        static_cast<void>(measure(segmented, {at::ones({2, 4})}));
        const std::vector<at::Tensor> after = values_of(model);
        for (size_t i = 0; i < before.size(); ++i) CHECK(at::equal(before[i], after[i]));
    }
}

TEST_CASE("a parameter that does not train and that forward writes is a buffer of its name") {
    // Halves are exact, so every way to write it gives the same bits.
    const std::string writes =
        GENERATE(as<std::string>(), "    self.target.mul_(0.5).add_(self.w, alpha=0.5)\n",
                 "    self.target *= 0.5\n    self.target += self.w * 0.5\n");
    INFO(writes);
    torch::jit::Module module("Following");
    module.register_parameter("w", wave({4, 4}, 1).set_requires_grad(true), false);
    module.register_parameter("target", wave({4, 4}, 2), false);
    module.register_parameter("last", wave({4, 4}, 3).set_requires_grad(true), false);
    module.define(
        kHead + writes +
        "    return ((x @ self.w - x @ self.target) ** 2).sum() + (x @ self.last).sum()\n");
    Model model = Model::adopt(module);
    const SegmentedModel segmented = SegmentedModel::make(model, {}, 1);
    REQUIRE(model.buffers().size() == 1);
    CHECK(model.buffers()[0].name == "target");
    CHECK(model.buffers()[0].origin == ModelBuffer::Origin::kParameter);
    CHECK(names_of(model, {0, 1}) == std::vector<std::string>{"w", "last"});
    const at::Tensor x = wave({2, 4}, 5);
    const at::Tensor w = wave({4, 4}, 1).set_requires_grad(true);
    at::Tensor target = wave({4, 4}, 2);
    for (int step = 0; step < 2; ++step) {
        Boundary boundary = segmented.forward(0, {x}, {});
        {
            const at::NoGradGuard no_grad;
            target.mul_(0.5).add_(w, 0.5);
        }
        const at::Tensor loss =
            (x.matmul(w) - x.matmul(target)).square().sum() + x.matmul(wave({4, 4}, 3)).sum();
        CHECK(loss_of(boundary) == loss.item<double>());
        SegmentedModel::backward_loss(boundary, 1);
        loss.backward();
        // No gradient flows through a written value, in a trace either.
        CHECK(at::equal(model.parameters()[0].tensor.grad(), w.grad()));
        CHECK(at::equal(model.buffers()[0].tensor, target));
        model.parameters()[0].tensor.mutable_grad().reset();
        w.mutable_grad().reset();
    }
    // Evaluation finds the buffer again.
    LowerOptions evaluation;
    evaluation.trains = false;
    CHECK(lower(model, evaluation).buffers.size() == 1);
}

TEST_CASE("forward writes copies of its arguments, and a constant of its code is a buffer") {
    Model model = two_weights(
        "    x.mul_(2.0)\n    y = x @ self.w\n    x.add_(1.0)\n    return (x + y @ "
        "self.v).sum()\n");
    const SegmentedModel segmented = SegmentedModel::make(model, {}, 1);
    const at::Tensor x = wave({2, 4}, 5);
    const at::Tensor given = x.clone();
    for (int run = 0; run < 2; ++run) {
        const double loss = loss_of(segmented.forward(0, {given}, {}));
        const at::Tensor twice = x * 2.0;
        const at::Tensor product = twice.matmul(wave({4, 4}, 1)).matmul(wave({4, 4}, 2));
        CHECK(loss == (twice + 1.0 + product).sum().item<double>());
        CHECK(at::equal(given, x));
    }

    torch::jit::Module module("Counting");
    module.register_parameter("w", wave({4, 4}, 1).set_requires_grad(true), false);
    module.register_attribute("count", c10::TensorType::get(), at::zeros({}));
    module.define(kHead + "    self.count.add_(1.0)\n    return (x @ self.w).sum() * self.count\n");
    Model counting = Model::adopt(module);
    const SegmentedModel counted = SegmentedModel::make(counting, {}, 1);
    REQUIRE(counting.buffers().size() == 1);
    CHECK_FALSE(counting.buffers()[0].is_persistent);
    static_cast<void>(measure(counted, {x}));
    for (const double count : {1.0, 2.0})
        CHECK(loss_of(counted.forward(0, {x}, {})) ==
              (x.matmul(wave({4, 4}, 1)).sum() * count).item<double>());
    // Each lowering finds the same tensor.
    static_cast<void>(lower(counting, {}));
    CHECK(counting.buffers().size() == 1);
}

TEST_CASE("constants in one storage are buffers each, and overlapping ones are refused") {
    const auto model_of = [](const at::Tensor& a, const at::Tensor& b) {
        torch::jit::Module module("Halves");
        module.register_parameter("w", wave({4, 4}, 1).set_requires_grad(true), false);
        module.register_attribute("a", c10::TensorType::get(), a);
        module.register_attribute("b", c10::TensorType::get(), b);
        module.define(kHead +
                      "    self.a.add_(1.0)\n"
                      "    return ((x @ self.w) * self.a * self.b).sum()\n");
        return Model::adopt(module);
    };
    const at::Tensor x = wave({2, 4}, 5);
    const std::vector<at::Tensor> halves = wave({8}, 3).chunk(2);
    Model model = model_of(halves[0], halves[1]);
    const SegmentedModel segmented = SegmentedModel::make(model, {}, 1);
    for (int run = 1; run <= 2; ++run) {
        const at::Tensor a = wave({8}, 3).slice(0, 0, 4) + static_cast<double>(run);
        const at::Tensor b = wave({8}, 3).slice(0, 4, 8);
        const at::Tensor expected = (x.matmul(wave({4, 4}, 1)) * a * b).sum();
        CHECK(loss_of(segmented.forward(0, {x}, {})) ==
              Approx(expected.item<double>()).epsilon(1e-6));
    }
    const at::Tensor whole = wave({7}, 3);
    Model overlapping = model_of(whole.slice(0, 0, 4), whole.slice(0, 3, 7));
    CHECK_THROWS_WITH(lower(overlapping, {}),
                      Catch::Contains("shares memory with another constant"));
}

// LibTorch assumes that these operators return new memory. Its compiler removes a write that
// nothing reads, so the written values are read here.
TEST_CASE("a write into what may be the operand itself is followed, or refused by name") {
    const auto with_table = [](const std::string& body) {
        torch::jit::Module module("Written");
        module.register_parameter("w", wave({4, 4}, 1).set_requires_grad(true), false);
        module.register_buffer("mean", at::zeros({4}));
        module.define(kHead + body);
        return Model::adopt(module);
    };
    Model model = with_table(
        "    same = self.mean.type_as(x)\n"
        "    same.add_(1.0)\n"
        "    return (x @ self.w).sum() * (self.mean.sum() + same.sum())\n");
    const SegmentedModel segmented = SegmentedModel::make(model, {}, 1);
    const at::Tensor x = wave({2, 4}, 5);
    static_cast<void>(measure(segmented, {x}));
    for (const double sum : {8.0, 16.0})
        CHECK(loss_of(segmented.forward(0, {x}, {})) ==
              (x.matmul(wave({4, 4}, 1)).sum() * sum).item<double>());
    for (const char* operand :
         {"torch.atleast_1d(self.mean)", "torch.meshgrid([self.mean], indexing=\"ij\")[0]",
          "torch.einsum(\"i->i\", [self.mean])", "torch.broadcast_tensors([self.mean, x])[0]"}) {
        INFO(operand);
        Model unseen = with_table("    same = " + std::string(operand) +
                                  "\n"
                                  "    same.add_(1.0)\n"
                                  "    return (x @ self.w).sum() * same.sum()\n");
        CHECK_THROWS_WITH(lower(unseen, {}), Catch::Contains("clone() the result"));
    }
    // Its result is written, and is in the memory of no state.
    Model fresh = with_table(
        "    row = torch.atleast_1d(self.mean + 1.0)\n"
        "    row.add_(1.0)\n"
        "    return ((x @ self.w) * row).sum()\n");
    static_cast<void>(lower(fresh, {}));
}

TEST_CASE("between set_grad_enabled(False) and (True) values are computed without gradients") {
    const std::string body =
        "    h = torch.tanh(x @ self.w)\n"
        "    torch.set_grad_enabled(False)\n"
        "    t = torch.tanh(h @ self.v)\n"
        "    u = torch.tanh(t @ self.w)\n"
        "    torch.set_grad_enabled(True)\n"
        "    return (h * u).sum()\n";
    Model model = two_weights(body);
    const SegmentedModel segmented = SegmentedModel::make(model, {}, 1);
    CHECK(segmented.lowered().graph->toString().find("set_grad_enabled") == std::string::npos);
    const at::Tensor x = wave({2, 4}, 5);
    const at::Tensor v = wave({4, 4}, 2), w = wave({4, 4}, 1).set_requires_grad(true);
    const at::Tensor h = at::tanh(x.matmul(w));
    const at::Tensor u = at::tanh(at::tanh(h.detach().matmul(v)).matmul(w.detach()));
    (h * u).sum().backward();
    const ComputeContext context(/*gradients=*/true);
    Boundary last = segmented.forward(0, segmented.first_inputs({x}), {});
    const at::Tensor own = model.parameters()[1].tensor;
    REQUIRE(model.parameters()[1].name == "w");
    SegmentedModel::backward_loss(last, 1);
    REQUIRE(own.grad().defined());
    CHECK(at::allclose(own.grad(), w.grad(), 1e-6));
    // If gradients are not switched on again in the block, the switch stays in the graph, and so do
    // the nodes after it.
    Model open = two_weights(body.substr(0, body.find("    torch.set_grad_enabled(True)")) +
                             "    return (h * u).sum()\n");
    const SegmentedModel whole = SegmentedModel::make(open, {}, 3);
    int64_t switched = 0;
    for (const auto& segment : whole.segments())
        switched += segment.graph->toString().find("set_grad_enabled") != std::string::npos ? 1 : 0;
    CHECK(switched == 1);
}

}  // namespace dslaunch

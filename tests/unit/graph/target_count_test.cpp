#include "graph/lower/target_count.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/jit/ir/ir.h>

#include "base/error.h"
#include "support/catch.h"
#include "support/script_module.h"
#include "support/whole_run.h"

namespace dslaunch::test {
namespace {

// Two samples of three targets, of which four count; and two samples of which no target counts.
const at::Tensor kTokens = at::tensor({0, 1, 2, 3, 0, 1}, at::kLong).view({2, 3});
const at::Tensor kTargets = at::tensor({1, -100, 3, 0, -100, 2}, at::kLong).view({2, 3});
const at::Tensor kNone = at::full({2, 3}, -100, at::kLong);

std::string forward_with(const std::string& body) {
    return "def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:\n"
           "    rows = torch.embedding(self.table, tokens).flatten(0, 1)\n" +
           body;
}

Model table_model(const std::string& body) {
    return script_model(forward_with(body), {{"table", wave({4, 4}, 0.25)}});
}

double run_loss(const SegmentedModel& segmented, const at::Tensor& targets) {
    const ComputeContext context(/*gradients=*/true);
    std::vector<c10::IValue> values = segmented.first_inputs({kTokens, targets});
    Boundary boundary;
    for (size_t s = 0; s < segmented.segments().size(); ++s) {
        boundary = segmented.forward(s, s == 0 ? values : boundary.values, {});
    }
    return loss_of(boundary);
}

struct Form {
    const char* name;
    const char* body;
    double counted;
    double factor = 1;  // of the mean cross entropy
};

const Form kForms[] = {
    {"cross entropy", "    return torch.cross_entropy_loss(rows, targets.view(-1))\n", 4},
    {"times a constant",
     "    return 0.5 * torch.cross_entropy_loss(rows, targets.view(-1)) / 4.0\n", 4, 0.125},
    {"of a copy in another type",
     "    return torch.cross_entropy_loss(rows.float(), targets.int().long().flatten()).float()\n",
     4},
    {"negative likelihood",
     "    return torch.nll_loss_nd(torch.log_softmax(rows, 1), targets.flatten())\n", 4},
    {"other marks",
     "    labels = targets.masked_fill(targets == 3, -100)\n"
     "    return torch.cross_entropy_loss(rows, labels.flatten())\n",
     3, 0},
    {"shifted as transformers does",
     "    labels = torch.constant_pad_nd(targets, [0, 1], -100)[:, 1:]\n"
     "    return torch.cross_entropy_loss(rows, labels.flatten())\n",
     2, 0},
    {"its own quotient",
     "    marks = (targets != -100).to(rows.dtype)\n"
     "    each = torch.cross_entropy_loss(rows, targets.flatten(), None, 0)\n"
     "    return (each * marks.flatten()).sum() / marks.sum()\n",
     4},
    {"with a bound",
     "    marks = (targets != -100).float()\n"
     "    each = torch.cross_entropy_loss(rows, targets.flatten(), None, 0)\n"
     "    return (each * marks.flatten()).sum() / marks.sum().clamp(min=1.0)\n",
     4},
    {"with a small number added",
     "    marks = (targets != -100).float()\n"
     "    each = torch.cross_entropy_loss(rows, targets.flatten(), None, 0)\n"
     "    return (each * marks.flatten()).sum() / (marks.sum() + 1e-8)\n",
     4}};

TEST_CASE("the targets of a loss that a model computes itself are counted before it runs") {
    for (const Form& form : kForms) {
        INFO(form.name);
        Model model = table_model(form.body);
        const SegmentedModel plain = SegmentedModel::make(model, {}, 1);
        REQUIRE(plain.lowered().targets != nullptr);
        const TargetCount& targets = *plain.lowered().targets;
        CHECK(targets.of({kTokens, kTargets}) == form.counted);
        CHECK(targets.of({kTokens, kNone}) == 0);
        CHECK(targets.varies(/*tokens=*/false));
        LowerOptions options;
        options.loss.mean = LossMean::kToken;
        const SegmentedModel summed = SegmentedModel::make(model, options, 1);
        CHECK(run_loss(summed, kTargets) ==
              Approx(run_loss(plain, kTargets) * form.counted).epsilon(1e-6));
        CHECK(run_loss(summed, kNone) == 0);
    }
}

// A model need not divide by a count. Its mean over one batch stays as the model computes it.
TEST_CASE("a loss is divided by the number that the model divides by") {
    struct Divisor {
        const char* divisor;
        double of_targets, of_none;
    };
    // Four targets count, and the labels sum to 1 + 3 + 0 + 2 - 200 and to -600.
    const Divisor divisors[] = {{"marks.sum() + 1.0", 5, 1},
                                {"marks.sum().clamp(min=20.0)", 20, 20},
                                {"marks.sum().clamp(min=1.0)", 4, 0},
                                {"(0.1 * marks).sum().clamp(min=1.0)", 1, 0},
                                {"targets.float().sum()", -194, -600}};
    for (const Divisor& row : divisors) {
        INFO(row.divisor);
        Model model = table_model(
            "    marks = (targets != -100).float()\n"
            "    each = torch.cross_entropy_loss(rows, targets.flatten(), None, 0)\n"
            "    return each.sum() / (" +
            std::string(row.divisor) + ")\n");
        const SegmentedModel plain = SegmentedModel::make(model, {}, 1);
        REQUIRE(plain.lowered().targets != nullptr);
        const double loss = run_loss(plain, kTargets);
        CHECK(loss ==
              Approx(model.module().forward({kTokens, kTargets}).toTensor().item<double>()));
        CHECK(plain.lowered().targets->of({kTokens, kTargets}) == Approx(row.of_targets));
        CHECK(plain.lowered().targets->of({kTokens, kNone}) == row.of_none);
        LowerOptions options;
        options.loss.mean = LossMean::kToken;
        const SegmentedModel summed = SegmentedModel::make(model, options, 1);
        const TargetCount& counted = *summed.lowered().targets;
        if (row.of_targets < 0) {
            CHECK_THROWS_WITH(counted.of({kTokens, kTargets}), Catch::Contains("micro_batch"));
            continue;
        }
        CHECK(run_loss(summed, kTargets) / counted.of({kTokens, kTargets}) == Approx(loss));
    }
}

TEST_CASE("rows of probabilities are counted as the loss reads them") {
    const char* const layouts[] = {"targets.transpose(1, 2).reshape(-1, 4)",
                                   "targets.permute([0, 2, 1]).flatten(0, 1)"};
    const at::Tensor probabilities = at::ones({2, 4, 3}).div(4);
    for (const char* layout : layouts) {
        Model model =
            table_model("    return torch.cross_entropy_loss(rows, " + std::string(layout) + ")\n");
        CHECK(lower(model, {}).targets->of({kTokens, probabilities}) == 6);
    }
}

TEST_CASE("tokens without a sign are all targets unless the model marks some") {
    const auto varies = [](const std::string& body) {
        Model model = table_model(body);
        return lower(model, {}).targets->varies(/*tokens=*/true);
    };
    CHECK_FALSE(varies(kForms[0].body));
    CHECK_FALSE(varies(kForms[2].body));
    CHECK(varies(kForms[4].body));
    CHECK_FALSE(varies(kForms[5].body));
    CHECK(varies(kForms[6].body));
}

TEST_CASE("a mean over tokens is refused where the targets are not known, by the operator") {
    const std::pair<const char*, const char*> rows[] = {
        {"    loss = torch.cross_entropy_loss(rows, targets.view(-1))\n"
         "    return loss + 0.1 * rows.square().mean()\n",
         "aten::add"},
        {"    return torch.cross_entropy_loss(rows, targets.view(-1), self.table[0])\n",
         "which divides by class weights"},
        {"    return torch.cross_entropy_loss(rows, targets.view(-1), None, 2)\n",
         "which is not a mean"},
        {"    return torch.cross_entropy_loss(rows, rows.argmax(1))\n",
         "whose targets are not computed from forward's arguments alone"},
        {"    targets.masked_fill_(targets == 3, -100)\n"
         "    return torch.cross_entropy_loss(rows, targets.view(-1))\n",
         "whose targets are modified in place by forward"},
        {"    return rows.square().mean()\n", "aten::"}};
    for (const auto& [body, why] : rows) {
        INFO(body);
        Model model = table_model(body);
        // With class weights, it is still known which micro batches have targets.
        const LoweredGraph lowered = lower(model, {});
        const bool weighs = std::string(why).ends_with("class weights");
        CHECK((lowered.targets != nullptr) == weighs);
        if (!weighs) CHECK_THAT(lowered.why_no_targets, Catch::Contains(why));
        LowerOptions options;
        options.loss.mean = LossMean::kToken;
        try {
            static_cast<void>(lower(model, options));
            FAIL("not refused");
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::kConfig);
            CHECK_THAT(error.what(), Catch::Contains(why) && Catch::Contains("micro_batch"));
        }
    }
}

TEST_CASE("a quotient of sums is 0 without a target, and its bits are the same with some") {
    Model model = table_model(kForms[6].body);
    const SegmentedModel segmented = SegmentedModel::make(model, {}, 1);
    CHECK(run_loss(segmented, kNone) == 0);
    const double loss = run_loss(segmented, kTargets);
    CHECK(loss == model.module().forward({kTokens, kTargets}).toTensor().item<double>());
}

constexpr const char* kByMode =
    "def forward(self, x: Tensor) -> Tensor:\n"
    "    if self.training:\n"
    "        return x * 10\n"
    "    return x\n";

// Returns a model whose root adds the results of two parts for W = 1, with these modes.
Model parts_in(bool root, bool left, bool right) {
    const auto part = [](bool training) {
        torch::jit::Module made("Part");
        made.register_attribute("training", c10::BoolType::get(), training);
        made.define(kByMode);
        return made;
    };
    torch::jit::Module module("Root");
    module.register_attribute("training", c10::BoolType::get(), root);
    module.register_parameter("w", at::ones({}).set_requires_grad(true), /*is_buffer=*/false);
    module.register_module("left", part(left));
    module.register_module("right", part(right));
    module.define(
        "def forward(self) -> Tensor:\n"
        "    own = self.w * 1000 if self.training else self.w * 100\n"
        "    return own + self.left.forward(self.w) + 2 * self.right.forward(self.w)\n");
    return Model::adopt(module);
}

TEST_CASE("parts that were saved in evaluation stay there while the rest trains") {
    const auto loss = [](Model& model, bool training) {
        LowerOptions options;
        options.trains = training;
        const SegmentedModel segmented = SegmentedModel::make(model, options, 1);
        const ComputeContext context(/*gradients=*/false);
        return loss_of(segmented.forward(0, segmented.first_inputs({}), {}));
    };
    const std::tuple<bool, bool, bool, double, std::vector<std::string>> rows[] = {
        {true, true, true, 1030, {}},
        {true, false, true, 1021, {"left"}},
        {true, true, false, 1012, {"right"}},
        {true, false, false, 1003, {"left", "right"}},
        {false, true, false, 112, {"", "right"}},
        {false, false, false, 1030, {}}};
    for (const auto& [root, left, right, expected, kept] : rows) {
        Model model = parts_in(root, left, right);
        CHECK(loss(model, /*training=*/true) == expected);
        CHECK(loss(model, /*training=*/false) == 103);
        CHECK(loss(model, /*training=*/true) == expected);
        CHECK(model.kept_in_evaluation() == kept);
        CHECK(model.was_saved_in_evaluation() == (!root && !left && !right));
        CHECK(lower(model, {}).reads_mode);
    }
}

}  // namespace
}  // namespace dslaunch::test

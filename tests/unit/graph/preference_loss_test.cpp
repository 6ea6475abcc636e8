// Losses of preferences, for logits from a table of a few numbers: closed forms, and the same
// formulas written with LibTorch.
#include <ATen/core/Tensor.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "base/error.h"
#include "graph/lower/lower.h"
#include "graph/lower/parameters_as.h"
#include "graph/lower/reward_means.h"
#include "graph/lowered/lowered_graph.h"
#include "graph/segment/compute_context.h"
#include "support/catch.h"
#include "support/script_module.h"
#include "support/whole_run.h"

namespace dslaunch {

using namespace config;
using namespace graph;
namespace {

using test::run_segments;

constexpr int64_t kWords = 3;

// The logits of the word after x are row x of w: [rows, length] -> [rows, length, words].
const char* const kTable =
    "def forward(self, x: Tensor) -> Tensor:\n    return torch.embedding(self.w, x)\n";

LossConfig loss_named(LossKind kind, double beta, double label_smoothing = 0) {
    LossConfig loss;
    loss.kind = kind;
    loss.target = "targets";
    loss.beta = beta;
    loss.label_smoothing = label_smoothing;
    return loss;
}

LowerOptions options_of(const LossConfig& loss) {
    LowerOptions options;
    options.loss = loss;
    return options;
}

// Two pairs: answers of 2 and 1 tokens, and of 1 and 3.
struct Pairs {
    at::Tensor tokens =
        at::tensor({0, 1, 2, 0, 1, 2, 0, 0, 2, 2, 0, 0, 2, 0, 1, 1}, at::kLong).view({2, 2, 4});
    at::Tensor targets =
        at::tensor({-100, 2, 0, -100, -100, 0, -100, -100, -100, 1, -100, -100, 0, 1, 1, -100},
                   at::kLong)
            .view({2, 2, 4});
    at::Tensor reference = at::tensor({-1.5F, -0.75F, -2.25F, -3.0F}).view({2, 2});

    [[nodiscard]] std::vector<c10::IValue> arguments(const LossConfig& loss) const {
        if (!loss.needs_reference()) return {tokens, targets};
        return {tokens, reference, targets};
    }
};

// Returns the loss as the papers define it, for a table of logits that requires gradients.
at::Tensor expected_loss(const LossConfig& loss, const at::Tensor& table, const Pairs& pairs) {
    const at::Tensor counts = pairs.targets.ne(-100);
    const at::Tensor logits = table.index_select(0, pairs.tokens.flatten()).view({2, 2, 4, kWords});
    const at::Tensor picked =
        at::gather(at::log_softmax(logits, -1), 3, pairs.targets.clamp_min(0).unsqueeze(3));
    at::Tensor answers = (picked.squeeze(3) * counts).sum({2});
    const at::Tensor chosen_sums = answers.select(1, 0);
    if (loss.needs_reference()) answers = answers - pairs.reference;
    if (loss.kind != LossKind::kDpo) answers = answers / counts.sum({2});
    const at::Tensor margin = answers.select(1, 0) - answers.select(1, 1);
    const auto lost = [](const at::Tensor& odds) { return -at::log_sigmoid(odds); };
    if (loss.kind == LossKind::kIpo) return (margin - 1 / (2 * loss.beta)).square().mean();
    if (loss.kind == LossKind::kSimPo) return lost(loss.beta * margin - loss.gamma).mean();
    if (loss.kind == LossKind::kOrpo) {
        const at::Tensor odds = answers - at::log1p(-at::exp(answers));
        return -chosen_sums.sum() / counts.select(1, 0).sum() +
               loss.beta * lost(odds.select(1, 0) - odds.select(1, 1)).mean();
    }
    return (lost(loss.beta * margin) * (1 - loss.label_smoothing) +
            lost(-loss.beta * margin) * loss.label_smoothing)
        .mean();
}

const std::vector<LossConfig>& losses() {
    static const std::vector<LossConfig> all = {
        loss_named(LossKind::kDpo, 0.1), loss_named(LossKind::kDpo, 0.7, 0.2),
        loss_named(LossKind::kIpo, 0.4), loss_named(LossKind::kSimPo, 2.0),
        loss_named(LossKind::kOrpo, 0.3)};
    return all;
}

}  // namespace

TEST_CASE("losses of preferences and their gradients are those of their papers") {
    const at::Tensor table = test::wave({kWords, kWords}, 1);
    const Pairs pairs;
    for (const LossConfig& loss : losses()) {
        INFO("kind " << static_cast<int>(loss.kind) << ", smoothing " << loss.label_smoothing);
        Model model = test::script_model(kTable, {{"w", table}});
        const SegmentedModel cut = SegmentedModel::make(model, options_of(loss), 1);
        CHECK(cut.arguments() == (loss.needs_reference()
                                      ? std::vector<std::string>{"x", "reference", "targets"}
                                      : std::vector<std::string>{"x", "targets"}));
        const test::RunResult run = run_segments(cut, pairs.arguments(loss), {}, false);
        at::Tensor leaf = table.clone().set_requires_grad(true);
        const at::Tensor expected = expected_loss(loss, leaf, pairs);
        expected.backward();
        // A few sums of numbers about 1 in fp32.
        CHECK(run.loss == Approx(expected.item<double>()).epsilon(1e-6));
        CHECK((run.gradients.at("w") - leaf.grad()).abs().max().item<double>() < 1e-6);
        // With the answers exchanged, the loss is another one.
        Pairs turned;
        turned.tokens = pairs.tokens.flip({1});
        turned.targets = pairs.targets.flip({1});
        turned.reference = pairs.reference.flip({1});
        const double other = run_segments(cut, turned.arguments(loss), {}, false).loss;
        CHECK(other == Approx(expected_loss(loss, table, turned).item<double>()).epsilon(1e-6));
        CHECK(std::abs(other - run.loss) > 1e-3);
    }
}

TEST_CASE("dpo of equal logits is a closed form, and of equal answers the logarithm of 2") {
    Model model = test::script_model(kTable, {{"w", at::zeros({kWords, kWords})}});
    const LossConfig loss = loss_named(LossKind::kDpo, 0.3);
    const SegmentedModel cut = SegmentedModel::make(model, options_of(loss), 1);
    const Pairs pairs;
    // Each token costs log 3; answers have 2 and 1 tokens, and 1 and 3.
    const double first = 0.3 * ((-2 * std::log(3) + 1.5) - (-std::log(3) + 0.75)),
                 second = 0.3 * ((-std::log(3) + 2.25) - (-3 * std::log(3) + 3.0));
    CHECK(run_segments(cut, pairs.arguments(loss), {}, false).loss ==
          Approx((std::log1p(std::exp(-first)) + std::log1p(std::exp(-second))) / 2).epsilon(1e-6));
    Pairs tie;
    for (at::Tensor* tensor : {&tie.tokens, &tie.targets, &tie.reference})
        tensor->select(1, 1).copy_(tensor->select(1, 0));
    const test::RunResult run = run_segments(cut, tie.arguments(loss), {}, false);
    CHECK(run.loss == Approx(std::log(2.0)).epsilon(1e-6));
    CHECK(run.gradients.at("w").abs().max().item<double>() == 0);
}

TEST_CASE("rewards are beta times the answers' log-probabilities, and have no gradient") {
    const at::Tensor table = at::zeros({kWords, kWords});
    table.select(1, 0).fill_(std::log(2.0));  // word 0: probability 1/2; words 1 and 2: a quarter
    const double half = std::log(0.5), quarter = std::log(0.25);
    // Sums over the answers of Pairs, and their numbers of tokens.
    const std::vector<double> sums = {quarter + half, half, quarter, half + 2 * quarter};
    const std::vector<double> counts = {2, 1, 1, 3}, reference = {-1.5, -0.75, -2.25, -3.0};
    const Pairs pairs;
    for (const LossConfig& loss : losses()) {
        INFO("kind " << static_cast<int>(loss.kind));
        Model model = test::script_model(kTable, {{"w", table}});
        const SegmentedModel cut = SegmentedModel::make(model, options_of(loss), 1);
        REQUIRE(cut.lowered().has_rewards);
        const ComputeContext context(true, at::kFloat);
        const Boundary last =
            cut.forward(0, cut.first_inputs(pairs.arguments(loss)), DrawKey{1, 0, 0});
        const at::Tensor rewards = rewards_tensor(last);
        CHECK(rewards.sizes() == at::IntArrayRef({2, 2}));
        CHECK_FALSE(rewards.requires_grad());
        const RewardMeans means = reward_means(rewards);
        std::vector<double> expected;
        for (size_t i = 0; i < sums.size(); ++i)
            expected.push_back(loss.beta * (loss.needs_reference() ? sums[i] - reference[i]
                                                                   : sums[i] / counts[i]));
        CHECK(means.chosen == Approx((expected[0] + expected[2]) / 2).epsilon(1e-5));
        CHECK(means.rejected == Approx((expected[1] + expected[3]) / 2).epsilon(1e-5));
        CHECK(means.margin() == Approx(means.chosen - means.rejected));
        CHECK(means.accuracy ==
              Approx(((expected[0] > expected[1] ? 1 : 0) + (expected[2] > expected[3] ? 1 : 0)) /
                     2.0));
    }
    Model model = test::script_model(kTable, {{"w", table}});
    LossConfig other;
    other.kind = LossKind::kCrossEntropy;
    CHECK_FALSE(lower(model, options_of(other)).has_rewards);
}

TEST_CASE("orpo of equal logits is a closed form, and of a certain answer a number") {
    Model model = test::script_model(kTable, {{"w", at::zeros({kWords, kWords})}});
    const LossConfig loss = loss_named(LossKind::kOrpo, 0.3);
    const SegmentedModel cut = SegmentedModel::make(model, options_of(loss), 1);
    const Pairs pairs;
    // Each token costs log 3 in both answers, so the odds are equal.
    CHECK(run_segments(cut, pairs.arguments(loss), {}, false).loss ==
          Approx(std::log(3.0) + 0.3 * std::log(2.0)).epsilon(1e-6));
    // Word 0 always comes, and it is the whole chosen answer.
    const at::Tensor certain = at::zeros({kWords, kWords});
    certain.select(1, 0).fill_(200.0);
    Model sure = test::script_model(kTable, {{"w", certain}});
    const SegmentedModel of_sure = SegmentedModel::make(sure, options_of(loss), 1);
    Pairs zeros;
    zeros.targets.select(1, 0).clamp_max_(0);
    const test::RunResult run = run_segments(of_sure, zeros.arguments(loss), {}, false);
    // The rejected answer of one pair is certain too.
    CHECK(run.loss == Approx(0.15 * std::log(2.0)).epsilon(1e-5));
    CHECK(run.gradients.at("w").isfinite().all().item<bool>());
}

TEST_CASE("in 16 bits the loss of preferences is computed in fp32") {
    // Values that bf16 and fp16 hold.
    const at::Tensor table = at::tensor({0.5F, -1.0F, 2.0F, 0.25F, 1.5F, -0.5F, 1.0F, 0.0F, -2.0F})
                                 .view({kWords, kWords});
    const Pairs pairs;
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf})
        for (const LossConfig& loss : losses()) {
            Model model = test::script_model(kTable, {{"w", table}});
            LowerOptions options = options_of(loss);
            options.compute_dtype = dtype;
            const SegmentedModel cut = SegmentedModel::make(model, options, 1);
            const ParametersAs narrow(model, std::vector<int>{0}, cut.lowered());
            CHECK(run_segments(cut, pairs.arguments(loss), {}, false).loss ==
                  Approx(expected_loss(loss, table, pairs).item<double>()).epsilon(1e-6));
        }
}

TEST_CASE("a model's own logits are taken, and a model without any is refused by name") {
    const LossConfig loss = loss_named(LossKind::kDpo, 0.1);
    const std::string own =
        "def forward(self, x: Tensor, targets: Tensor) -> Tensor:\n"
        "    return torch.cross_entropy_loss(torch.embedding(self.w, x).flatten(0, 1), "
        "targets.flatten())\n";
    const std::string logits =
        "def logits(self, x: Tensor) -> Tensor:\n    return torch.embedding(self.w, x)\n";
    const at::Tensor table = test::wave({kWords, kWords}, 1);
    Model both = test::script_model(logits + own, {{"w", table}});
    const SegmentedModel cut = SegmentedModel::make(both, options_of(loss), 1);
    const Pairs pairs;
    CHECK(run_segments(cut, pairs.arguments(loss), {}, false).loss ==
          Approx(expected_loss(loss, table, pairs).item<double>()).epsilon(1e-6));
    // Its tokens are still known to select rows of the table.
    const auto limits = argument_limits(cut.lowered(), both);
    REQUIRE(limits.size() == 1);
    CHECK(limits.front().argument == "x");
    CHECK(limits.front().rows == kWords);
    Model without = test::script_model(own, {{"w", table}});
    CHECK_THROWS_WITH(
        static_cast<void>(lower(without, options_of(loss))),
        Catch::Contains("forward itself takes `targets`, the target of the loss, but a preference "
                        "loss needs a forward, or a method logits(tokens)"));
}

}  // namespace dslaunch

// Models whose ranks share positions, between split layers or everywhere, compared with the whole
// models.
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "base/error.h"
#include "graph/measure/measure.h"
#include "graph/tensor/tensor_rank.h"
#include "support/catch.h"
#include "support/text_tools.h"
#include "unit/graph/tensor/tensor_case.h"

namespace dslaunch {

using namespace graph;
using namespace plan;
namespace {

using test::count_of;
using test::kLayersOf;
using test::named;
using test::TensorCase;
using Kind = TensorCollectiveKind;

TensorRules sharing(int size) {
    TensorRules rules = test::ranks(size);
    rules.share_positions = true;
    return rules;
}

TensorModel sequence(const TensorCase& made, int size) {
    return make_sequence_parallel(made.model, made.lowered, made.inputs, size);
}

std::string refusal(const TensorCase& made, int size) {
    return test::error_of(ExitCode::kInput, [&] { static_cast<void>(sequence(made, size)); });
}

// Returns a decoder layer of width 12 around ATTENTION, which reads q, k, v [2, heads, 6, 4].
TensorCase decoder(int64_t heads, int64_t keys, const std::string& attention,
                   const std::string& behind = "") {
    const std::string text = fmt::format(
        "def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:\n"
        "    x = torch.embedding(self.wte, tokens)\n"
        "    B, T, C = x.size()\n"
        "    q = torch.linear(x, self.wq).view([B, T, {0}, 4]).transpose(1, 2)\n"
        "    k = torch.linear(x, self.wk).view([B, T, {1}, 4]).transpose(1, 2)\n"
        "    v = torch.linear(x, self.wv).view([B, T, {1}, 4]).transpose(1, 2)\n"
        "{2}"
        "    x = x + torch.linear(a.transpose(1, 2).reshape([B, T, {3}]), self.wo)\n"
        "{4}"
        "    logits = torch.linear(x, self.wte)\n"
        "    return torch.cross_entropy_loss(logits.view([-1, 13]), targets.flatten(), None, 1, "
        "-100, 0.1)\n",
        heads, keys, attention, 4 * heads, behind);
    return TensorCase::script(text, {{"wte", {13, 12}},
                                     {"wq", {4 * heads, 12}},
                                     {"wk", {4 * keys, 12}},
                                     {"wv", {4 * keys, 12}},
                                     {"wo", {12, 4 * heads}}});
}

const char* const kGrouped =
    "    a = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True, scale=None, "
    "enable_gqa=True)\n";
const char* const kPlain = "    a = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True)\n";

// Returns true if a decoder with the code BEHIND after its attention computes on two ranks the same
// as the whole decoder.
bool checks(const std::string& behind) {
    const TensorCase made = decoder(2, 2, kPlain, behind);
    const TensorModel tensor = sequence(made, 2);
    const TensorCheck check = made.check(tensor, made.whole());
    return check.difference < check.bound;
}

// Replaces TENSOR's collective SITE by REPLACEMENT, which gets its other arguments; "": by its
// input.
void disable(TensorModel& tensor, int64_t site, const char* replacement) {
    for (torch::jit::Node* node : tensor.lowered.graph->nodes()) {
        const size_t last = node->inputs().size() - 1;
        const std::string kind = node->kind().toQualString();
        if (kind.rfind("dslaunch::tensor_", 0) != 0 || kind == "dslaunch::tensor_share") continue;
        const auto number = torch::jit::toIValue(node->input(last));
        if (!number || !number->isInt() || number->toInt() != site) continue;
        const torch::jit::WithInsertPoint here(node);
        std::vector<torch::jit::NamedValue> arguments;
        for (size_t i = 0; i < last; ++i) arguments.emplace_back(node->input(i));
        const std::string name = replacement;
        if (name == "dslaunch::tensor_gather") arguments.emplace_back(site);
        torch::jit::Value* instead =
            name.empty()
                ? node->input(0)
                : tensor.lowered.graph->insert(c10::Symbol::fromQualString(name), arguments);
        node->output()->replaceAllUsesWith(instead);
        for (auto& [original, twin] : tensor.twins.values)
            if (twin == node->output()) twin = instead;
        return;
    }
    FAIL("no collective " << site);
}

std::string outcome(const TensorCase& made, const TensorModel& tensor,
                    const TensorReference& whole) {
    return test::error_of([&] { static_cast<void>(made.check(tensor, whole)); });
}

}  // namespace

TEST_CASE("positions shared between split layers: models compute what they compute whole") {
    for (const auto& [name, layers] : kLayersOf) {
        const TensorCase made = TensorCase::fixture(name);
        const TensorReference whole = made.whole();
        for (const int size : {1, 2, 4}) {
            INFO(name << " on " << size);
            const TensorModel tensor = made.split(sharing(size));
            const TensorCheck check = made.check(tensor, whole);
            CHECK(check.difference < check.bound);
            // There are as many scattered sums as plain sums without sequence parallelism. Each
            // layer's input is gathered once.
            CHECK(count_of(tensor.plan, Kind::kReduce) == 0);
            CHECK(count_of(tensor.plan, Kind::kReduceScatter) == 2 * layers + 1);
            CHECK(count_of(tensor.plan, Kind::kAllGather) == 2 * layers + 1);
        }
    }
}

TEST_CASE("norms and biases of shared positions have summands as gradients") {
    const TensorPlan plan = TensorCase::fixture("gpt").split(sharing(2)).plan;
    CHECK(named(plan, "blocks.0.ln1.weight").gradient == TensorGradient::kSummand);
    CHECK(named(plan, "blocks.2.proj.bias").gradient == TensorGradient::kSummand);
    CHECK(named(plan, "blocks.2.proj.weight").gradient == TensorGradient::kOwn);
    CHECK(named(plan, "wpe.weight").gradient == TensorGradient::kComplete);
}

TEST_CASE("positions shared between split layers are kept once by all ranks together") {
    test::Fixture fixture = test::Fixture::load("gpt");
    SegmentedModel one = fixture.cut(1);
    const auto batch = fixture.batch(one);
    GraphInputs inputs;
    inputs.arguments = one.first_inputs(batch);
    for (const ModelParameter& parameter : fixture.model.parameters())
        inputs.parameters.push_back(parameter.tensor.detach());
    for (const ModelBuffer& buffer : fixture.model.buffers())
        inputs.buffers.push_back(buffer.tensor);
    const int size = 2;
    std::vector<TensorModel> models;
    for (const bool share : {false, true}) {
        TensorRules rules = test::ranks(size);
        rules.share_positions = share;
        models.push_back(make_tensor_parallel(fixture.model, one.lowered(), inputs, rules));
    }
    narrow_to_shares(fixture.model, models[0].plan, {0, size});
    std::vector<int64_t> kept;
    for (TensorModel& tensor : models) {
        LoneTensorGroup alone({0, size});
        const TensorGroupScope scope(&alone);
        const SegmentedModel split = SegmentedModel::of_graph(fixture.model, tensor.lowered, 1);
        kept.push_back(measure(split, batch).segments[0].activation_bytes.value);
    }
    // Two norms in each of three blocks, and one after the blocks, keep their inputs: [tokens, 32]
    // fp32. A rank now has half of these. The layers' inputs are gathered, and kept as before.
    const int64_t activation = inputs.arguments[0].toTensor().numel() * 32 * 4;
    CHECK(kept[0] - kept[1] >= 7 * activation / 2);
}

TEST_CASE("a collective of positions that is left out is named by the check") {
    const TensorCase made = TensorCase::fixture("gpt");
    const TensorReference whole = made.whole();
    const TensorPlan plan = made.split(sharing(2)).plan;
    for (size_t site = 0; site < plan.collectives.size(); ++site) {
        const Kind kind = plan.collectives[site].kind;
        if (kind == Kind::kLoss) continue;
        INFO(plan.collectives[site].where);
        TensorModel broken = made.split(sharing(2));
        disable(broken, static_cast<int64_t>(site),
                kind == Kind::kAllGather ? "dslaunch::tensor_gather" : "dslaunch::tensor_share");
        const std::string text = outcome(made, broken, whole);
        CHECK_THAT(text, Catch::Contains("the tensor parallel graph does not compute"));
        if (kind == Kind::kReduceScatter)
            CHECK_THAT(text,
                       Catch::Contains("differs is computed by " + plan.collectives[site].where));
    }
}

TEST_CASE("what needs all positions between split layers gets them gathered") {
    const std::vector<std::pair<const char*, int64_t>> ways = {
        // With smoothed labels the table stays whole. The logits are gathered too, because they
        // still belong to a rank's positions.
        {"    x = x - x.mean([1], True)\n", 2},
        {"    x = torch.roll(x, [1], [1])\n", 1},
        {"    x = x + torch.cumsum(x, 1) * torch.tanh(x)\n", 2}};
    for (const auto& [body, gathers] : ways) {
        INFO(body);
        const TensorCase made = decoder(4, 2, kGrouped, body);
        const TensorModel tensor = made.split(sharing(2));
        const TensorCheck check = made.check(tensor, made.whole());
        CHECK(check.difference < check.bound);
        CHECK(count_of(tensor.plan, Kind::kGather) == gathers);
        CHECK(count_of(tensor.plan, Kind::kReduceScatter) == 1);
    }
}

TEST_CASE("positions shared everywhere: models compute what they compute whole") {
    for (const auto& [name, layers] : kLayersOf) {
        const TensorCase made = TensorCase::fixture(name);
        const TensorReference whole = made.whole();
        for (const int size : {1, 2, 4}) {
            INFO(name << " on " << size);
            const TensorModel tensor = sequence(made, size);
            const TensorCheck check = made.check(tensor, whole);
            CHECK(check.difference < check.bound);
            // Each layer exchanges queries, keys, values and attention's result. The only sum is
            // the loss's.
            CHECK(count_of(tensor.plan, Kind::kExchange) == 4 * layers);
            CHECK(count_of(tensor.plan, Kind::kReduce) == 1);
            CHECK(tensor.plan.collectives.size() == static_cast<size_t>(4 * layers + 1));
            for (const TensorParameter& parameter : tensor.plan.parameters)
                CHECK(parameter.gradient == TensorGradient::kSummand);
        }
    }
}

TEST_CASE("heads of keys that are fewer than ranks, or do not divide, are repeated") {
    const TensorCase three = decoder(6, 2, kGrouped);
    CHECK(three.check(sequence(three, 3), three.whole()).where != "");
    const TensorCase one = decoder(2, 1, kGrouped);
    CHECK(one.check(sequence(one, 2), one.whole()).where != "");
}

TEST_CASE("what needs keys or values of all positions gets them gathered") {
    struct Way {
        const char* name;
        TensorCase made;
        int size;
        int64_t gathers;
    };
    const Way ways[] = {
        {"a learned mask of heads that do not divide",
         decoder(3, 3,
                 "    m = (x.mean([0, 2]) * x.mean([0, 2])[:, None])\n"
                 "    a = torch.scaled_dot_product_attention(q, k, v, m)\n"),
         2, 4},
        {"attention written as products",
         decoder(2, 2,
                 "    a = torch.matmul(torch.softmax(torch.matmul(q, k.transpose(-2, -1)), -1), "
                 "v)\n"),
         2, 2},
        {"keys of other positions than the queries",
         decoder(2, 2, "    a = torch.scaled_dot_product_attention(q, k[:, :, :3], v[:, :, :3])\n"),
         2, 2},
        {"dropout of heads that do not divide",
         decoder(3, 3, "    a = torch.scaled_dot_product_attention(q, k, v, None, 0.5, True)\n"), 3,
         0},
        {"a mean over positions", decoder(2, 2, kPlain, "    x = x - x.mean([1], True)\n"), 2, 1},
        {"an operator without a rule",
         decoder(2, 2, kPlain, "    x = x + torch.roll(x, [1], [1])\n"), 2, 1},
    };
    for (const Way& way : ways) {
        INFO(way.name);
        const TensorModel tensor = sequence(way.made, way.size);
        const TensorCheck check = way.made.check(tensor, way.made.whole());
        CHECK(check.difference < check.bound);
        CHECK(count_of(tensor.plan, Kind::kGather) + count_of(tensor.plan, Kind::kAllGather) ==
              way.gathers);
    }
}

TEST_CASE("blocks of keys go round the ranks where heads do not divide") {
    const char* const plain = "    a = torch.scaled_dot_product_attention(q, k, v)\n";
    const char* const masked = "    a = torch.scaled_dot_product_attention(q, k, v, m)\n";
    const auto with = [&](const char* mask) { return std::string(mask) + masked; };
    const std::vector<std::pair<std::string, std::string>> ways = {
        {"every key", plain},
        {"keys up to a query's place", kPlain},
        {"a scale",
         "    a = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True, scale=0.3)\n"},
        {"a mask of truths", with("    m = torch.ones([T, T], dtype=11).tril()\n")},
        {"a mask of one row", with("    m = torch.arange(T) != 2\n    m = m[None, None, None]\n")},
        {"a window, which leaves blocks without a key for some queries",
         with("    m = torch.ones([T, T], dtype=11).tril().triu(-1)\n")},
        {"queries that no key counts for", with("    m = torch.ones([T, T], dtype=11).tril(-2)\n")},
        {"a mask that is added, of each head",
         with("    m = torch.arange(3 * T * T, dtype=7).sin().view([1, 3, T, T])\n")},
        {"values of another width than the keys",
         "    w = torch.cat([v, v.tanh()], 3)\n"
         "    a = torch.scaled_dot_product_attention(q, k, w, None, 0.0, True)[:, :, :, 2:6]\n"},
    };
    for (const auto& [name, attention] : ways) {
        const TensorCase made = decoder(3, 3, attention);
        const TensorReference whole = made.whole();
        for (const int size : {2, 6}) {
            INFO(name << " on " << size);
            const TensorModel tensor = sequence(made, size);
            const TensorCheck check = made.check(tensor, whole);
            CHECK(check.difference < check.bound);
            CHECK(count_of(tensor.plan, Kind::kRing) == 1);
            CHECK(tensor.plan.collectives.size() == 2);  // the other collective is the loss's sum
        }
    }
    const TensorCase flat =
        decoder(1, 1,
                "    a = torch.scaled_dot_product_attention(q.flatten(0, 1), k.flatten(0, 1), "
                "v.flatten(0, 1), None, 0.0, True).view([B, 1, T, 4])\n");
    CHECK(count_of(sequence(flat, 3).plan, Kind::kRing) == 1);
    CHECK(flat.check(sequence(flat, 3), flat.whole()).where != "");
    const TensorCase grouped = decoder(9, 3, kGrouped);
    const TensorModel tensor = sequence(grouped, 2);
    CHECK(count_of(tensor.plan, Kind::kRing) == 1);
    CHECK(grouped.check(tensor, grouped.whole()).where != "");
    // Keys and values [2, 3, 6, 4] in fp64, and backward their gradients too.
    const auto ring =
        std::ranges::find(tensor.plan.collectives, Kind::kRing, &TensorCollective::kind);
    CHECK(ring->forward.value == 2 * 2 * 3 * 6 * 4 * 8);
    CHECK(ring->backward.value == 2 * ring->forward.value);
}

TEST_CASE("what is written in place is followed or refused, and never written to a copy") {
    // Experts write their rows into new memory.
    CHECK(
        checks("    at = torch.arange(5, -1, -1)\n"
               "    new = torch.zeros([2, 6, 12], dtype=7)\n"
               "    new = torch.index_put_(new, [None, at], torch.tanh(x).to(7))\n"
               "    x = x + new\n"));
    CHECK(
        checks("    new = torch.zeros([6, 2, 12], dtype=7)\n"
               "    new = new.index_add_(0, torch.arange(6), torch.flip(x, [1]).transpose(0, 1))\n"
               "    x = x + new.transpose(0, 1)\n"));
    // A position that is written to a view of a split value.
    const std::string view = refusal(decoder(2, 2, kPlain,
                                             "    out = torch.zeros_like(x)\n"
                                             "    torch.copy_(torch.select(out, 1, 2), x[:, 0])\n"
                                             "    x = x + out\n"),
                                     2);
    CHECK_THAT(view, Catch::Contains("is written in place"));
}

TEST_CASE("lists and views of what is split") {
    CHECK(
        checks("    first = x[:, :2]\n    rest = x[:, 2:]\n    x = torch.cat([rest, first], 1)\n"));
    CHECK(checks("    x = torch.concat([x, x], -1)[:, :, 6:18]\n"));
    CHECK(
        checks("    parts = torch.split(torch.tanh(x), 1, 1)\n"
               "    x = x + torch.cat([parts[5], parts[0], parts[1], parts[2], parts[3], "
               "parts[4]], 1)\n"));
}

TEST_CASE("a loss that every rank computes of all positions counts once") {
    // Nothing is split at the loss, because its mean over the samples' last positions needs all
    // positions.
    const TensorCase made = TensorCase::script(
        "def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:\n"
        "    x = torch.tanh(torch.embedding(self.wte, tokens))\n"
        "    last = torch.flip(x, [1])[:, 0]\n"
        "    return torch.linear(last, self.head).square().mean()\n",
        {{"wte", {13, 12}}, {"head", {4, 12}}});
    const TensorModel tensor = sequence(made, 2);
    const TensorCheck check = made.check(tensor, made.whole());
    CHECK(check.difference < check.bound);
    CHECK(count_of(tensor.plan, Kind::kGather) + count_of(tensor.plan, Kind::kAllGather) == 1);
}

TEST_CASE("positions that do not divide, or that no table shows, are refused by name") {
    CHECK_THAT(refusal(decoder(2, 2, kPlain), 4),
               Catch::Contains("a sample has 6 positions") &&
                   Catch::Contains("cannot be divided evenly among them") &&
                   Catch::Contains("samples of 4 or 8 positions") &&
                   Catch::Contains("or 2 or 3 or 6 ranks"));
    const TensorCase none = TensorCase::script(
        "def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:\n"
        "    return (tokens * self.w).square().mean()\n",
        {{"w", {6}}});
    CHECK_THAT(refusal(none, 2), Catch::Contains("no embedding table is indexed"));
}

TEST_CASE("a loss that is not summed over the ranks' positions is named by the check") {
    const TensorCase made = TensorCase::fixture("llama");
    TensorModel broken = sequence(made, 2);
    disable(broken, static_cast<int64_t>(broken.plan.collectives.size()) - 1, "");
    CHECK_THAT(
        outcome(made, broken, made.whole()),
        Catch::Contains("the first value that differs is computed by aten::cross_entropy_loss"));
}

}  // namespace dslaunch

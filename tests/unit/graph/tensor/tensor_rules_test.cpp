// Shapes of layers that are split or not, the texts of refusals, and the rules that a user gives.
#include <ATen/ops/ones.h>

#include "base/error.h"
#include "support/catch.h"
#include "support/text_tools.h"
#include "unit/graph/tensor/tensor_case.h"

namespace dslaunch {

using namespace config;
using namespace graph;
using namespace plan;
namespace {

using test::named;
using test::ranks;
using test::TensorCase;
using Sizes = TensorCase::NamedSizes;

// Returns a decoder of one layer, width 12, around BODY, which computes y from x [2, 6, 12].
std::string decoder(const std::string& body) {
    return "def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:\n"
           "    x = torch.embedding(self.wte, tokens)\n"
           "    B, T, C = x.size()\n" +
           body +
           "    h = torch.layer_norm(x + y, [12], self.norm, None, 1e-5)\n"
           "    logits = torch.linear(h, self.wte)\n"
           "    return torch.cross_entropy_loss(logits.flatten(0, 1), targets.flatten(), None, 1, "
           "-100, 0.0)\n";
}

Sizes with_table(Sizes sizes) {
    sizes.insert(sizes.begin(), {{"wte", {13, 12}}, {"norm", {12}}});
    return sizes;
}

// Returns the sizes of separate projections of width 12, with HEADS and KEYS heads of width 4.
Sizes projections(int64_t heads, int64_t keys) {
    return with_table({{"wq", {4 * heads, 12}},
                       {"wk", {4 * keys, 12}},
                       {"wv", {4 * keys, 12}},
                       {"bk", {4 * keys}},
                       {"wo", {12, 4 * heads}},
                       {"bo", {12}}});
}

std::string project(int64_t heads, int64_t keys) {
    return fmt::format(
        "    q = torch.linear(x, self.wq).view([B, T, {0}, 4]).transpose(1, 2)\n"
        "    k = torch.linear(x, self.wk, self.bk).view([B, T, {1}, 4]).transpose(1, 2)\n"
        "    v = torch.linear(x, self.wv).view([B, T, {1}, 4]).transpose(1, 2)\n",
        heads, keys);
}

std::string merge(int64_t heads) {
    return fmt::format(
        "    y = torch.linear(a.transpose(1, 2).reshape([B, T, {}]), self.wo, "
        "self.bo)\n",
        4 * heads);
}

std::string message(const TensorCase& made, const TensorRules& rules) {
    return test::error_of([&] { static_cast<void>(made.split(rules)); });
}

TensorRules with_rule(int size, const std::string& pattern, TensorRule rule) {
    TensorRules rules = ranks(size);
    rules.patterns = {{pattern, rule}};
    return rules;
}

const Sizes kFeedForward = {{"fc", {8, 12}}, {"fb", {8}}, {"out", {12, 8}}};

}  // namespace

TEST_CASE("attention written in many ways is split by heads") {
    struct Way {
        const char* name;
        std::string body;
        Sizes sizes;
        int size;
    };
    const std::string masked = "    m = torch.ones([T, T], dtype=11).tril().logical_not()\n";
    const std::vector<Way> ways = {
        {"nine heads, three of keys, as SmolLM2",
         project(9, 3) +
             "    k = k.unsqueeze(2).expand([B, 3, 3, T, 4]).reshape([B, 9, T, 4])\n"
             "    v = torch.repeat_interleave(v, 3, 1)\n"
             "    a = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True)\n" +
             merge(9),
         projections(9, 3), 3},
        {"keys that are fewer than ranks, repeated by the operator",
         project(4, 2) +
             "    a = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True, scale=None, "
             "enable_gqa=True)\n" +
             merge(4),
         projections(4, 2), 4},
        {"one head of keys for all",
         project(4, 1) +
             "    a = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True, scale=None, "
             "enable_gqa=True)\n" +
             merge(4),
         projections(4, 1), 2},
        {"keys as many as ranks, repeated by the operator",
         project(4, 2) +
             "    a = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True, scale=None, "
             "enable_gqa=True)\n" +
             merge(4),
         projections(4, 2), 2},
        {"products and a softmax",
         project(2, 2) + masked +
             "    s = torch.matmul(q, k.transpose(-2, -1)) * 0.5\n"
             "    s = s.masked_fill(m, -1e9)\n"
             "    a = torch.matmul(torch.softmax(s, -1), v)\n" +
             merge(2),
         projections(2, 2), 2},
        {"one projection in chunks, sizes read from shares",
         "    q, k, v = torch.chunk(torch.matmul(x, self.qkv), 3, -1)\n"
         "    H = q.size(2) // 4\n"
         "    q = q.view([B, T, H, -1]).permute([0, 2, 1, 3])\n"
         "    k = k.view([B, T, H, -1]).permute([0, 2, 1, 3])\n"
         "    v = v.view([B, T, H, -1]).permute([0, 2, 1, 3])\n"
         "    a = torch.scaled_dot_product_attention(q, k, v)\n"
         "    y = torch.linear(a.permute([0, 2, 1, 3]).flatten(2), self.wo)\n",
         with_table({{"qkv", {12, 24}}, {"wo", {12, 8}}}), 2},
        {"one projection cut by constants, keys of fewer heads",
         "    p = torch.linear(x, self.qkv)\n"
         "    q = p[:, :, :16].view([B, T, 4, 4]).transpose(1, 2)\n"
         "    k = torch.narrow(p, 2, 16, 8).view([B, T, 2, 4]).transpose(1, 2)\n"
         "    v = p[:, :, 24:].view([B, T, 2, 4]).transpose(1, 2)\n"
         "    k = torch.repeat_interleave(k, 2, 1)\n"
         "    v = torch.repeat_interleave(v, 2, 1)\n"
         "    a = torch.scaled_dot_product_attention(q, k, v)\n" +
             merge(4),
         with_table({{"qkv", {32, 12}}, {"wo", {12, 16}}, {"bo", {12}}}), 2},
        {"queries normed per head by a weight of all heads' own",
         project(2, 2) +
             "    q = torch.rms_norm(q, [4], self.qn, 1e-6)\n"
             "    k = k * self.kn\n"
             "    a = torch.scaled_dot_product_attention(q, k, v)\n" +
             merge(2),
         [] {
             Sizes sizes = projections(2, 2);
             sizes.push_back({"qn", {4}});
             sizes.push_back({"kn", {2, 1, 4}});
             return sizes;
         }(),
         2},
        {"a norm of queries whose weight the residual adds too",
         project(2, 2) +
             "    q = torch.rms_norm(q, [4], self.qn, 1e-6)\n"
             "    a = torch.scaled_dot_product_attention(q, k, v)\n" +
             merge(2) + "    y = y + self.qn.sum()\n",
         [] {
             Sizes sizes = projections(2, 2);
             sizes.push_back({"qn", {4}});
             return sizes;
         }(),
         2},
    };
    for (const Way& way : ways) {
        INFO(way.name);
        const TensorCase made = TensorCase::script(decoder(way.body), way.sizes);
        const TensorPlan plan = made.split_and_check(ranks(way.size));
        CHECK(named(plan, "wo").rule == TensorRule::kRow);
        CHECK(named(plan, "wte").rule == TensorRule::kVocabulary);
        if (std::string(way.name).find("residual") != std::string::npos)
            CHECK(named(plan, "qn").gradient == TensorGradient::kComplete);
        if (std::string(way.name).find("normed") == std::string::npos) continue;
        CHECK(named(plan, "qn").gradient == TensorGradient::kSummand);
        CHECK(named(plan, "kn").shard == TensorShard{0, {2}});
    }
}

TEST_CASE("feed-forward layers written in many ways are split by their width") {
    const std::vector<std::pair<std::string, Sizes>> ways = {
        {"    y = torch.linear(torch.gelu(torch.linear(x, self.fc, self.fb)), self.out)\n",
         kFeedForward},
        {"    g, u = torch.split(torch.linear(x, self.fc, self.fb), 4, -1)\n"
         "    y = torch.linear(torch.silu(g) * u, self.out)\n",
         {{"fc", {8, 12}}, {"fb", {8}}, {"out", {12, 4}}}},
        {"    h = torch.addmm(self.fb, x.view([-1, C]), self.fc)\n"
         "    h = torch.relu_(h).view([B, T, 8])\n"
         "    y = torch.addmm(self.ob, h.view([-1, h.size(-1)]), self.out).view([B, T, C])\n",
         {{"fc", {12, 8}}, {"fb", {8}}, {"out", {8, 12}}, {"ob", {12}}}},
        {"    h = torch.matmul(x, self.fc.t()) + self.fb\n"
         "    y = torch.matmul(torch.tanh(h), self.out.t())\n",
         kFeedForward},
        // Dropout is drawn for the whole layer on every rank, and each rank uses its share.
        {"    h = torch.dropout(torch.gelu(torch.linear(x, self.fc, self.fb)), 0.5, True)\n"
         "    y = torch.dropout(torch.linear(h, self.out), 0.5, True)\n",
         kFeedForward}};
    for (const auto& [body, sizes] : ways) {
        INFO(body);
        const TensorCase made = TensorCase::script(decoder(body), with_table(sizes));
        for (const int size : {2, 4}) {
            const TensorPlan plan = made.split_and_check(ranks(size));
            CHECK(named(plan, "fc").rule == TensorRule::kColumn);
            CHECK(named(plan, "fb").rule == TensorRule::kColumn);
            CHECK(named(plan, "out").rule == TensorRule::kRow);
        }
    }
}

TEST_CASE("tables and classes need not divide, and may be fewer than ranks") {
    const std::string body = "    y = torch.linear(x, self.fc)\n";
    const TensorCase made =
        TensorCase::script(decoder(body), with_table({{"fc", {12, 12}}}));  // 13 rows, tied
    for (const int size : {2, 3, 5, 14}) {
        INFO(size);
        const TensorPlan plan = made.split_and_check(ranks(size));
        CHECK(named(plan, "wte").shard == TensorShard{0, {13}});
        CHECK(named(plan, "fc").rule == TensorRule::kReplicated);
        CHECK_THAT(named(plan, "fc").why, Catch::Contains("is not split"));
    }
}

TEST_CASE("a loss that the config names is split by classes too") {
    LossConfig loss;
    loss.kind = LossKind::kCrossEntropy;
    loss.target = "targets";
    const std::string text =
        "def forward(self, tokens: Tensor) -> Tensor:\n"
        "    x = torch.embedding(self.wte, tokens, 3)\n"  // row 3 is padding
        "    return torch.linear(torch.tanh(x), self.head)\n";
    for (const LossMean mean : {LossMean::kMicroBatch, LossMean::kToken}) {
        loss.mean = mean;
        const TensorCase made =
            TensorCase::script(text, {{"wte", {12, 4}}, {"head", {12, 4}}}, loss);
        const TensorPlan plan = made.split_and_check(ranks(4));
        CHECK(named(plan, "head").rule == TensorRule::kVocabulary);
        CHECK(plan.collectives.size() == 3);
    }
}

TEST_CASE("heads and widths that do not divide are refused with parameter, shape and node") {
    const std::string attention =
        project(9, 3) +
        "    k = torch.repeat_interleave(k, 3, 1)\n"
        "    v = torch.repeat_interleave(v, 3, 1)\n"
        "    a = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True)\n" +
        merge(9);
    const std::string nine =
        message(TensorCase::script(decoder(attention), projections(9, 3)), ranks(2));
    CHECK_THAT(nine, Catch::Contains("wq [36, 12] cannot be split: aten::view in "));
    CHECK_THAT(
        nine, Catch::Contains("turns 36 into 9 x 4, which cannot be divided evenly among 2 ranks"));
    CHECK_THAT(nine, Catch::Contains("`wq`: `replicated`"));
    const std::string body =
        "    y = torch.linear(torch.gelu(torch.linear(x, self.fc, self.fb)), self.out)\n";
    const std::string width =
        message(TensorCase::script(decoder(body), with_table(kFeedForward)), ranks(3));
    CHECK_THAT(width,
               Catch::Contains("8 features of fc [8, 12] cannot be divided evenly among 3 ranks"));
}

TEST_CASE("what stands between attention's layers and has no rule is refused by name") {
    const std::vector<std::pair<std::string, std::string>> ways = {
        {"    a = torch.scaled_dot_product_attention(torch.roll(q, [1], [1]), k, v)\n",
         "aten::roll in the model's forward"},
        {"    a = torch.scaled_dot_product_attention(torch.softmax(q, 1), k, v)\n",
         "it needs all elements of the split dimension"}};
    for (const auto& [body, expected] : ways) {
        const TensorCase made =
            TensorCase::script(decoder(project(2, 2) + body + merge(2)), projections(2, 2));
        CHECK_THAT(message(made, ranks(2)), Catch::Contains(expected));
    }
}

TEST_CASE("a layer that cannot be proven stays whole with a line, and strict refuses it") {
    const std::string body =
        project(3, 3) + "    a = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True)\n" +
        merge(3) +
        "    x = x + y\n"
        "    y = torch.linear(torch.gelu(torch.linear(x, self.fc, self.fb)), self.out)\n";
    Sizes sizes = projections(3, 3);
    sizes.insert(sizes.end(), kFeedForward.begin(), kFeedForward.end());
    const TensorCase made = TensorCase::script(decoder(body), sizes);
    const TensorPlan plan = made.split_and_check(ranks(2));
    CHECK(named(plan, "fc").rule == TensorRule::kColumn);
    CHECK_FALSE(named(plan, "fc").unproven);
    for (const char* name : {"wq", "wk", "wv"}) {
        INFO(name);
        CHECK(named(plan, name).rule == TensorRule::kReplicated);
        CHECK(named(plan, name).unproven);
    }
    CHECK_FALSE(named(plan, "norm").unproven);  // it has nothing to split
    CHECK_THAT(unproven_text(plan),
               Catch::Contains("\n  not split, whole on every rank: wq: aten::view in ") &&
                   Catch::Contains("which cannot be divided evenly among 2 ranks"));
    TensorRules strict = ranks(2);
    strict.strict = true;
    CHECK_THAT(message(made, strict), Catch::Contains("wq [12, 12] cannot be split"));
    const TensorPlan thirds = made.split_and_check(ranks(3));
    CHECK(named(thirds, "wq").rule == TensorRule::kColumn);
    CHECK_THAT(unproven_text(thirds), Catch::Contains("\n  not split, whole on every rank: fc: "));
}

TEST_CASE("given rules count before what the graph shows") {
    const std::string body =
        "    y = torch.linear(torch.gelu(torch.linear(x, self.fc, self.fb)), self.out)\n";
    const TensorCase made = TensorCase::script(decoder(body), with_table(kFeedForward));
    // The layer is left whole; three ranks do not divide its width.
    TensorRules rules = with_rule(3, "fc", TensorRule::kReplicated);
    TensorPlan plan = made.split_and_check(rules);
    CHECK(named(plan, "fc").rule == TensorRule::kReplicated);
    CHECK(named(plan, "out").rule == TensorRule::kReplicated);
    // If one layer is split alone and the next layer needs all of its result, the result is
    // gathered.
    const TensorCase alone = TensorCase::script(
        decoder(
            "    y = torch.layer_norm(torch.linear(x, self.fc), [12], self.norm, None, 1e-5)\n"),
        with_table({{"fc", {12, 12}}}));
    CHECK(named(alone.split(ranks(2)).plan, "fc").rule == TensorRule::kReplicated);
    plan = alone.split_and_check(with_rule(2, "fc", TensorRule::kColumn));
    CHECK(named(plan, "fc").rule == TensorRule::kColumn);
    CHECK(plan.collectives[2].kind == TensorCollectiveKind::kGather);
    plan = alone.split_and_check(with_rule(2, "fc", TensorRule::kRow));
    CHECK(named(plan, "fc").shard == TensorShard{1, {12}});
    // If a rule cannot be followed, the error names the cause.
    CHECK_THAT(
        message(made, with_rule(2, "wte", TensorRule::kRow)),
        Catch::Contains(
            "tensor rule `row` of wte [13, 12]: this parameter is the weight of an embedding ("));
    CHECK_THAT(message(made, with_rule(2, "norm", TensorRule::kColumn)),
               Catch::Contains("no linear layer or embedding of the graph uses this parameter in a "
                               "way that the rule can split"));
    CHECK_THAT(message(made, with_rule(3, "fc", TensorRule::kColumn)),
               Catch::Contains("cannot be split as its rule `column` says"));
}

TEST_CASE("a model with nothing to split is refused") {
    const TensorCase made = TensorCase::script(
        "def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:\n"
        "    return (tokens * self.w).square().mean()\n",
        {{"w", {6}}});
    CHECK_THAT(message(made, ranks(2)), Catch::Contains("no part of this model can be split"));
}

TEST_CASE("threads that meet at different collectives, or lose one, end with the reason") {
    const auto text = [](const std::function<void(TensorGroup&)>& body) {
        return test::error_of([&] { run_tensor_ranks(3, body); });
    };
    const at::Tensor ones = at::ones({2});
    CHECK(text([&](TensorGroup& group) {
              for (int64_t site = 0; site < 50; ++site)
                  if (!group.sum(ones * group.rank(), site).equal(ones * 3))
                      fail(ExitCode::kDiverged, "another sum");
          }) == "accepted");
    CHECK_THAT(
        text([&](TensorGroup& group) { static_cast<void>(group.sum(ones, group.rank() / 2)); }),
        Catch::Contains("their graphs differ"));
    CHECK(text([&](TensorGroup& group) {
              if (group.rank() == 1) fail(ExitCode::kInput, "rank 1 gives up");
              static_cast<void>(group.sum(ones, 0));
          }) == "rank 1 gives up");
}

}  // namespace dslaunch

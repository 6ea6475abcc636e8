#include "plan/tensor/tensor_plan.h"

#include "base/error.h"
#include "plan/tensor/tensor_rules.h"
#include "support/catch.h"
#include "support/text_tools.h"

namespace dslaunch {

using namespace plan;

namespace {

std::string refusal(const TensorRules& rules, const std::vector<std::string>& names) {
    return test::error_of(ExitCode::kConfig, [&] {
        static_cast<void>(match_tensor_rules(rules, names, std::vector<bool>(names.size(), true)));
    });
}

}  // namespace

TEST_CASE("a rank holds its share of every block, in their order") {
    // The fused weight has query, key and value one after the other, of 8, 4 and 4 features.
    const TensorShard fused{0, {8, 4, 4}};
    CHECK(shard_ranges(fused, {1, 2}) == std::vector<Range>{{4, 4}, {10, 2}, {14, 2}});
    CHECK(shard_ranges(fused, {0, 4}) == std::vector<Range>{{0, 2}, {8, 1}, {12, 1}});
    CHECK(divides_evenly(fused, 4));
    CHECK_FALSE(divides_evenly(fused, 8));
}

TEST_CASE("the shares of all ranks tile a dimension, even or not") {
    for (const std::vector<int64_t>& blocks :
         std::vector<std::vector<int64_t>>{{1}, {7}, {50257}, {3, 5, 8}, {12, 12, 12}}) {
        int64_t extent = 0;
        for (const int64_t block : blocks) extent += block;
        for (int size = 1; size <= 17; ++size) {
            std::vector<int> held(static_cast<size_t>(extent), 0);
            for (int rank = 0; rank < size; ++rank)
                for (const Range& range : shard_ranges({0, blocks}, {rank, size}))
                    for (int64_t i = range.begin; i < range.end(); ++i) ++held[i];
            CHECK(held == std::vector<int>(static_cast<size_t>(extent), 1));
        }
    }
}

TEST_CASE("the first pattern that fits a parameter's name is its rule") {
    const std::vector<std::string> names = {"wte.weight", "blocks.0.fc.weight",
                                            "blocks.11.fc.weight", "blocks.0.fc.bias"};
    TensorRules rules;
    rules.patterns = {{"blocks.0.*", TensorRule::kReplicated},
                      {"*fc.w*t", TensorRule::kColumn},
                      {"*", TensorRule::kVocabulary}};
    const auto found = match_tensor_rules(rules, names, std::vector<bool>(4, true));
    CHECK(found[0] == TensorRule::kVocabulary);
    CHECK(found[1] == TensorRule::kReplicated);
    CHECK(found[2] == TensorRule::kColumn);
    CHECK(found[3] == TensorRule::kReplicated);
    rules.patterns = {{"*.bias", TensorRule::kReplicated}};
    CHECK_FALSE(match_tensor_rules(rules, names, std::vector<bool>(4, true))[0].has_value());
}

TEST_CASE("DeepSpeed's expressions match the beginnings of weights' names, after the patterns") {
    const std::vector<std::string> names = {"model.layers.0.self_attn.q_proj.weight",
                                            "model.layers.0.self_attn.q_proj.bias",
                                            "model.layers.0.mlp.down_proj.weight",
                                            "model.layers.0.mlp.gate.weight",
                                            "lm_head.weight",
                                            "model.layers.0.mlp.norm.weight"};
    const std::vector<bool> is_linear = {true, false, true, true, true, false};
    TensorRules rules;
    rules.expressions = {{R"(.*\.self_attn\.[qkv]_proj\.weight$)", TensorRule::kColumn},
                         {R"(.*\.(o|down)_proj)", TensorRule::kRow},
                         {R"(.*\.mlp\..*)", TensorRule::kReplicated}};
    const auto found = match_tensor_rules(rules, names, is_linear);
    CHECK(found[0] == TensorRule::kColumn);
    CHECK_FALSE(found[1].has_value());  // a bias follows its weight
    CHECK(found[2] == TensorRule::kRow);
    CHECK(found[3] == TensorRule::kReplicated);
    CHECK_FALSE(found[4].has_value());
    CHECK_FALSE(found[5].has_value());  // a norm is no linear layer
    rules.patterns = {{"*.gate.weight", TensorRule::kColumn}};
    CHECK(match_tensor_rules(rules, names, is_linear)[3] == TensorRule::kColumn);
    rules = {};
    rules.expressions = {{"mlp", TensorRule::kRow}};  // no name begins like this
    CHECK(refusal(rules, names)
              .find("no pattern of layer_specs matches a linear layer's weight of the") !=
          std::string::npos);
}

TEST_CASE("a pattern that fits no parameter is an error with the nearest name") {
    const std::vector<std::string> names = {"wte.weight", "head.weight"};
    TensorRules rules;
    rules.patterns = {{"heat.weight", TensorRule::kColumn}};
    CHECK(refusal(rules, names) ==
          "tensor rule `heat.weight` matches no parameter of the model; did you mean "
          "`head.weight`?");
    rules.patterns = {{"wte", TensorRule::kColumn}};  // no `*`: the whole name
    CHECK(refusal(rules, names) ==
          "tensor rule `wte` matches no parameter of the model; the model's first parameter is "
          "`wte.weight`");
}

TEST_CASE("words of tensor rules are read, others refused with the list") {
    for (const TensorRule rule :
         {TensorRule::kColumn, TensorRule::kRow, TensorRule::kVocabulary, TensorRule::kReplicated})
        CHECK(parse_tensor_rule("a", tensor_rule_name(rule)) == rule);
    CHECK_THROWS_WITH(parse_tensor_rule("a.*", "colum"),
                      "tensor rule of `a.*`: `colum` is not one of column, row, vocabulary, "
                      "replicated");
}

TEST_CASE("a tensor plan in words tells equal layers once and sums the bytes") {
    TensorPlan plan;
    plan.size = 2;
    for (int layer = 0; layer < 2; ++layer) {
        TensorParameter qkv;
        qkv.name = fmt::format("blocks.{}.qkv.weight", layer);
        qkv.sizes = {96, 32};
        qkv.rule = TensorRule::kColumn;
        qkv.shard = {0, {32, 32, 32}};
        qkv.gradient = TensorGradient::kOwn;
        qkv.why = "feeds attention";
        plan.parameters.push_back(qkv);
        plan.collectives.push_back(
            {TensorCollectiveKind::kReduce,
             fmt::format("aten::linear in {}.proj (linear_{}.py:14)", layer, layer),
             kib(2),
             {}});
    }
    const std::string text = tensor_plan_text(plan);
    CHECK(text ==
          "   parameter            sizes     rule    split          gradient  why\n"
          "2  blocks.*.qkv.weight  [96, 32]  column  dim 0: 3 x 32  own       feeds attention\n"
          "\n"
          "   collective  forward  backward  at\n"
          "2  reduce      2.0 KiB  0 B       aten::linear in *.proj\n"
          "each micro batch needs 2 collectives, 4.0 KiB forward, 0 B backward\n");
}

}  // namespace dslaunch

// DeepSpeed's own keys, as its code reads them (fixtures/deepspeed/config_keys.tsv). The schema
// must know each of them, with every kind of value and every word that DeepSpeed takes.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "config/resolve/resolve.h"
#include "config/schema/schema.h"
#include "support/catch.h"
#include "support/places.h"

using namespace dslaunch;
using namespace dslaunch::config;

namespace {

struct Row {
    std::string path;
    std::vector<std::string> kinds;  // bool, int, …, or =WORD for a word that it takes
    std::string fallback;            // JSON
};

std::vector<Row> rows() {
    std::ifstream file(test::fixture_path("deepspeed/config_keys.tsv"));
    REQUIRE(file);
    std::vector<Row> result;
    for (std::string line; std::getline(file, line);) {
        const std::vector<std::string> parts = split(line, '\t');
        REQUIRE(parts.size() == 3);
        result.push_back({parts[0], split(parts[1], '|'), parts[2]});
    }
    return result;
}

// Returns a config that has only TEXT, which is JSON, at PATH.
std::string config_of(const std::string& path, const std::string& text) {
    std::string config = text;
    std::vector<std::string> parts = split(path, '.');
    std::reverse(parts.begin(), parts.end());
    for (const std::string& part : parts) config = fmt::format(R"({{"{}": {}}})", part, config);
    return config;
}

// Returns values of KIND, as JSON, that the key of ROW may have as far as its kind says.
std::vector<std::string> values_of(const Row& row, const std::string& kind) {
    if (kind.starts_with('=')) {
        const std::string word = kind.substr(1);
        return {parse_int(word) ? word : fmt::format("\"{}\"", word)};
    }
    if (row.path == "datastates_ckpt")
        return {"false"};  // a section, or the word that there is no section
    if (kind == "bool") return {"true", "false"};
    if (kind == "null") return {"null"};
    if (kind == "list" || kind == "dict" || kind == "str" || kind == "any") return {row.fallback};
    return {row.fallback == "null" ? "1" : row.fallback, kind == "int" ? "2" : "0.5"};
}

// Returns the problems which say that the value of PATH is of another kind or not among its words.
std::vector<std::string> refusals(const std::string& path, const std::string& value) {
    const TrainConfig config = parse_config(config_of(path, value), "c.json");
    std::vector<std::string> texts;
    for (const Problem& problem : resolve(config).problems)
        if (problem.message.starts_with("must") || problem.message.starts_with("unknown"))
            texts.push_back(problem.text());
    return texts;
}

}  // namespace

TEST_CASE("every key that DeepSpeed reads is known, with each kind of value that it takes") {
    size_t keys = 0, values = 0;
    for (const Row& row : rows()) {
        CAPTURE(row.path);
        ++keys;
        const KeySpec* const key = find_key(row.path);
        REQUIRE(key != nullptr);
        for (const std::string& kind : row.kinds) {
            for (const std::string& value : values_of(row, kind)) {
                CAPTURE(kind, value);
                ++values;
                for (const std::string& refusal : refusals(row.path, value)) FAIL_CHECK(refusal);
            }
        }
    }
    CHECK(keys > 300);
    CHECK(values > 500);
}

TEST_CASE("a name in a section without effect that is mistyped is a problem with a suggestion") {
    size_t sections = 0, mistyped = 0;
    std::set<std::string> known;
    for (const KeySpec& key : schema()) known.insert(key.path);
    for (const Row& row : rows()) {
        const size_t dot = row.path.rfind('.');
        if (dot == std::string::npos) continue;
        const KeySpec* const owner = find_key(row.path.substr(0, dot));
        REQUIRE(owner != nullptr);
        if (owner->status != KeyStatus::kWithoutEffect) continue;
        ++sections;
        const std::string name = row.path.substr(dot + 1);
        for (const std::string& wrong : {name + "s", name.substr(1), "x" + name}) {
            const std::string path = row.path.substr(0, dot + 1) + wrong;
            if (known.contains(path)) continue;
            ++mistyped;
            const std::vector<std::string> told = refusals(path, "1");
            CAPTURE(path);
            REQUIRE(told.size() == 1);
            CHECK(told.front().find("unknown key, did you mean `") != std::string::npos);
        }
    }
    CHECK(sections > 40);
    CHECK(mistyped > 120);
}

TEST_CASE("words for types and modes are read in all the forms that DeepSpeed takes") {
    const auto values = [](const std::string& text) {
        const Resolved result = resolve(parse_config(text, "c"));
        for (const Problem& problem : result.problems) UNSCOPED_INFO(problem.text());
        CHECK(result.problems.empty());
        return result;
    };
    struct Words {
        const char* text;
        DType compute;
    };
    for (const Words& row : std::initializer_list<Words>{{"torch.bfloat16", DType::kBF16},
                                                         {"bfloat16", DType::kBF16},
                                                         {"bf16", DType::kBF16},
                                                         {"torch.float16", DType::kF16},
                                                         {"float16", DType::kF16},
                                                         {"half", DType::kF16},
                                                         {"fp16", DType::kF16}}) {
        CAPTURE(row.text);
        const Resolved result =
            values(fmt::format("{{torch_autocast: {{enabled: true, dtype: {}}}}}", row.text));
        CHECK(result.config.precision.compute == row.compute);
        CHECK(result.config.precision.fp32_weights);
    }
    CHECK(values("{data_types: {grad_accum_dtype: torch.float32}}").config ==
          values("{data_types: {grad_accum_dtype: fp32}}").config);
    CHECK(values("{communication_data_type: BF16}").config ==
          values("{communication_data_type: bf16}").config);
    CHECK(values("{gradient_allreduce_op: SUM}").config ==
          values("{gradient_allreduce_op: sum}").config);
    CHECK(values("{checkpoint: {tag_validation: wARN, writer: {type: FAST}}}").config ==
          values("{}").config);
    CHECK(values("{datastates_ckpt: false}").config == values("{}").config);
    const Resolved other = resolve(parse_config("{torch_autocast: {dtype: torch.float32}}", "c"));
    REQUIRE(other.problems.size() == 1);
    CHECK(other.problems[0].path == "torch_autocast.dtype");
}

TEST_CASE("max_grad_norm among the optimizer's parameters is gradient_clipping") {
    const auto clipping = [](const std::string& text) {
        const Resolved result = resolve(parse_config(text, "c"));
        for (const Problem& problem : result.problems) UNSCOPED_INFO(problem.text());
        CHECK(result.problems.empty());
        return result.config.gradient_clipping;
    };
    for (const std::string& type : available_types("optimizer")) {
        CAPTURE(type);
        const auto with = [&](const char* norm, const char* more) {
            return fmt::format("{{optimizer: {{type: {}, params: {{max_grad_norm: {}}}}}{}}}", type,
                               norm, more);
        };
        CHECK(clipping(with("0.25", "")) == 0.25);
        CHECK(clipping(with("0", "")) == 0);
        CHECK(clipping(with("0", ", gradient_clipping: 0.5")) == 0.5);
        CHECK(clipping(with("0.5", ", gradient_clipping: 0.5")) == 0.5);
        const Resolved both = resolve(parse_config(with("0.25", ", gradient_clipping: 0.5"), "c"));
        REQUIRE(both.problems.size() == 1);
        CHECK(both.problems[0].path == "optimizer.params.max_grad_norm");
        CHECK(
            both.problems[0].message ==
            "is 0.25, but gradient_clipping, which means the same, is 0.5: remove one of the two");
    }
}

TEST_CASE("a number that is infinite or 0 here is refused where it stands, in JSON and in YAML") {
    struct Bad {
        const char* name;
        const char* text;
        const char* problem;
    };
    const std::string infinite = "is too large: numbers must be below 1.8e308";
    for (const Bad& bad :
         std::initializer_list<Bad>{{"c", "{optimizer: {type: AdamW, params: {lr: 1e400}}}",
                                     "c:1:40: optimizer.params.lr: `1e400` "},
                                    {"c.json", "{\"gradient_clipping\": 1e400}",
                                     "c.json:1:23: gradient_clipping: `1e400` "},
                                    {"c.json", "{\"gradient_clipping\": -1e400,\n\"seed\": 1}",
                                     "c.json:1:23: gradient_clipping: `-1e400` "},
                                    {"c.json", "{\n  gradient_clipping: 1e400\n}",
                                     "c.json:2:22: gradient_clipping: `1e400` "},
                                    {"c", "betas: [0.9, 1e999]", "c:1:14: betas: `1e999` "}}) {
        const TrainConfig config = parse_config(bad.text, bad.name);
        CAPTURE(bad.text);
        REQUIRE(config.problems.size() == 1);
        CHECK(config.problems[0].text() == bad.problem + infinite);
    }
    const TrainConfig small = parse_config("{gradient_clipping: 1e-400}", "c");
    REQUIRE(small.problems.size() == 1);
    CHECK(small.problems[0].message ==
          "`1e-400` is too small and would be 0: write 0, or at least 4.9e-324");
    // Text that only begins like a number is text.
    CHECK(parse_config("{comet: {project: 1e400x}}", "c").problems.empty());
    CHECK(parse_config("{comet: {project: \"1e400\"}}", "c").problems.empty());
    CHECK(parse_config("{a: 1e-310}", "c").problems.empty());
}

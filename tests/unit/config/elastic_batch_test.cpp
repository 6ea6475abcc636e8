// The section `elasticity`: its batches against DeepSpeed's (fixtures/deepspeed/elastic.jsonl), and
// the run configs that it makes.
#include "config/run/elastic_batch.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "config/resolve/begun_run.h"
#include "support/places.h"
#include "unit/config/resolved.h"

using namespace dslaunch;
using namespace dslaunch::config;
using namespace dslaunch::test;
using Json = nlohmann::json;

namespace {

ElasticityConfig settings_of(const Json& json) {
    ElasticityConfig config;
    config.train_rows_max = json.at("max_train_batch_size");
    config.micro_rows = json.at("micro_batch_sizes").get<std::vector<int64_t>>();
    config.ranks_min = json.at("min_gpus");
    config.ranks_max = json.at("max_gpus");
    config.prefers_larger = json.at("prefer_larger_batch");
    config.counts_nodes = json.at("version") == 0.2;
    config.ranks_per_node = json.at("num_gpus_per_node");
    return config;
}

// Returns DeepSpeed's answer for RANKS; null where no micro batch fits or RANKS is refused.
Json answer_of(const ElasticityConfig& config, int64_t ranks) {
    const int64_t limit = elastic_rows_limit(config);
    for (const int64_t micro : config.micro_rows)
        if (micro > limit) return nullptr;
    const auto batch = elastic_batch_for(config, ranks);
    const auto micro = batch ? elastic_micro_rows(config, *batch, ranks) : std::nullopt;
    if (!micro) return nullptr;
    const std::vector<int64_t>& copies = batch->copies;
    const size_t shown = std::min<size_t>(copies.size(), 16);
    return {batch->train_rows, *micro, std::vector<int64_t>(copies.begin(), copies.begin() + shown),
            copies.back(), copies.size()};
}

const char* const kElastic = R"("elasticity": {"enabled": true, "max_train_batch_size": 48,
    "micro_batch_sizes": [2, 3], "version": 0.1})";

std::string problems_of(const std::string& text, int64_t world_size) {
    ResolveOptions options;
    options.world_size = world_size;
    return texts_of(resolve(parse_config(text, "c"), options).problems);
}

}  // namespace

TEST_CASE("elastic batches are DeepSpeed's") {
    std::ifstream file(fixture_path("deepspeed/elastic.jsonl"));
    int rows = 0, refused = 0;
    for (std::string line; std::getline(file, line); ++rows) {
        INFO(line);
        const Json row = Json::parse(line);
        CHECK(answer_of(settings_of(row.at("elasticity")), row.at("ranks")) == row.at("answer"));
        refused += row.at("answer").is_null();
    }
    CHECK(rows > 150);
    CHECK(refused > 20);
}

TEST_CASE("one batch is shared by many numbers of ranks, each with its own micro batch") {
    // 48 = 24 x 2 = 16 x 3: the divisors of 24 and 16 can share it.
    struct Row {
        int64_t ranks, micro, steps;
    };
    for (const Row& row : {Row{1, 3, 16}, Row{2, 3, 8}, Row{3, 2, 8}, Row{4, 3, 4}, Row{6, 2, 4},
                           Row{8, 3, 2}, Row{12, 2, 2}, Row{16, 3, 1}, Row{24, 2, 1}}) {
        INFO(row.ranks);
        const BatchConfig batch = resolved(fmt::format("{{{}}}", kElastic), row.ranks).config.batch;
        CHECK(batch == BatchConfig{48, row.micro, row.steps, row.ranks});
    }
    const std::string refusal = problems_of(fmt::format("{{{}}}", kElastic), 5);
    CHECK(refusal.find("5 ranks cannot share a batch of at most 48 rows: 48 rows can be shared by "
                       "1, 2, 3, 4, 6, 8, 12, 16, 24 ranks") != std::string::npos);
}

TEST_CASE("version 0.2 gives other numbers of ranks a batch of their own") {
    const std::string text = R"({"elasticity": {"enabled": true, "max_train_batch_size": 48,
        "micro_batch_sizes": [2, 3]}})";
    CHECK(resolved(text, 4).config.batch == BatchConfig{48, 3, 4, 4});
    // 48 / (3 x 5) x 15 = 45, 48 / (2 x 5) x 10 = 40: the larger one.
    CHECK(resolved(text, 5).config.batch == BatchConfig{45, 3, 3, 5});
}

TEST_CASE("without a number of ranks the batch is known, and nothing that depends on them") {
    const Resolved result =
        resolve(parse_config(fmt::format("{{{}}}", kElastic), "c"), ResolveOptions{});
    CHECK(result.problems.empty());
    CHECK(value_at(result, "train_batch_size").value.as_double() == 48);
    CHECK(value_at(result, "gradient_accumulation_steps").value.is(Value::Kind::kNull));
}

TEST_CASE("keys of the batch beside elasticity are refused, or ignored on request") {
    const std::string text = fmt::format(R"({{"train_batch_size": 8, {}}})", kElastic);
    CHECK(problems_of(text, 2).find("train_batch_size: elasticity determines the batch") !=
          std::string::npos);
    std::string ignoring = text;
    ignoring.insert(ignoring.find("\"enabled\""), "\"ignore_non_elastic_batch_info\": true, ");
    const Resolved result = resolved(ignoring, 2);
    CHECK(result.config.batch.train_rows == 48);
    REQUIRE(!result.notes.empty());
    CHECK(result.notes.front().find("train_batch_size") != std::string::npos);
}

TEST_CASE("elasticity that is off changes nothing") {
    const std::string text = R"({"train_batch_size": 8, "elasticity": {"enabled": false,
        "max_train_batch_size": 48, "micro_batch_sizes": [2]}})";
    CHECK(resolved(text, 2).config.batch.train_rows == 8);
}

TEST_CASE("settings of elasticity that contradict each other are named") {
    const auto problem = [](const std::string& rest) {
        return problems_of(fmt::format(R"({{"elasticity": {{"enabled": true{}}}}})", rest), 2);
    };
    CHECK(problem("").find("max_train_batch_size: is needed") != std::string::npos);
    const std::string rows = R"(, "max_train_batch_size": 48)";
    CHECK(problem(rows).find("micro_batch_sizes: is needed") != std::string::npos);
    CHECK(problem(rows + R"(, "micro_batch_sizes": [2, 49])").find("49, is more than") !=
          std::string::npos);
    CHECK(problem(rows + R"(, "micro_batch_sizes": [2, 0])").find("each at least 1") !=
          std::string::npos);
    const std::string both = rows + R"(, "micro_batch_sizes": [2])";
    CHECK(problem(both + R"(, "min_gpus": 3, "max_gpus": 2)").find("is less than") !=
          std::string::npos);
    CHECK(problem(both + R"(, "version": 0.3)").find("must be 0.1 or 0.2") != std::string::npos);
    CHECK(problem(both + R"(, "model_parallel_size": 2, "num_gpus_per_node": 2)")
              .find("is 2, but this config divides a copy of the model among 1 rank") !=
          std::string::npos);
}

TEST_CASE("a resumed run takes no batch of its beginning when elasticity determines it") {
    TrainConfig config = parse_config(fmt::format("{{{}}}", kElastic), "c");
    take_begun(config, {"train_batch_size=40", "optimizer.params.lr=0.5"}, true);
    CHECK(find_path(config.root, "train_batch_size") == nullptr);
    CHECK(find_path(config.root, "optimizer.params.lr") != nullptr);
}

// The settings that a search considers, counted by hand, and the overrides that make them.
#include "plan/choose/tuning_space.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::plan;

namespace {

using Words = std::vector<std::string>;

std::set<int64_t> micro_batches(const std::vector<TunedSettings>& space) {
    std::set<int64_t> rows;
    for (const TunedSettings& one : space) rows.insert(one.micro_rows);
    return rows;
}

// Returns limits that leave only the micro batch and the stage to choose.
TuningLimits few_limits(int64_t rows, int64_t ranks) {
    TuningLimits limits;
    limits.rows = rows;
    limits.ranks = ranks;
    limits.tunes_recompute = false;
    limits.tunes_buckets = false;
    return limits;
}

}  // namespace

TEST_CASE("the list begins with the given settings, keeps the rows, and repeats none") {
    TunedSettings given;
    given.micro_rows = 2;
    given.accumulation_steps = 6;
    given.stage = 1;
    TuningLimits limits = few_limits(12, 4);
    limits.tunes_recompute = limits.tunes_buckets = limits.tunes_disk = true;
    limits.segments = 9;
    limits.trained_numel = int64_t{64} << 20;
    const std::vector<TunedSettings> space = tuning_space(given, limits);
    CHECK(space.front() == given);
    for (size_t i = 0; i < space.size(); ++i) {
        CHECK(space[i].micro_rows * space[i].accumulation_steps == 12);
        CHECK(std::count(space.begin(), space.end(), space[i]) == 1);
        CHECK(space[i].stage >= (space[i].parameters_on_disk ? 3 : space[i].optimizer_on_disk));
    }
    // 5 of the 6 divisors, 2 kinds of recompute, buckets of all, a fourth and a sixteenth, and the
    // places that each stage allows: 1 at stage 0, 2 at stages 1 and 2, 3 at stage 3.
    CHECK(space.size() == 5 * 2 * 3 * (1 + 2 + 2 + 3));
}

TEST_CASE("micro batches are divisors of the rows, spread over them, with the given one") {
    struct Row {
        int64_t rows, given, most;
        std::set<int64_t> expected;
    };
    const std::vector<Row> rows = {
        {8, 2, 5, {1, 2, 4, 8}},
        {7, 1, 5, {1, 7}},
        {1, 1, 5, {1}},
        {64, 8, 3, {1, 8, 64}},
        // The divisors are 1 2 3 4 6 8 12 16 24 48. Five choices divide the way from the first to
        // the last into quarters; the given 16 replaces 12.
        {48, 12, 5, {1, 3, 6, 12, 48}},
        {48, 16, 5, {1, 3, 6, 16, 48}},
        {64, 32, 1, {32}},
    };
    for (const Row& row : rows) {
        TunedSettings given;
        given.micro_rows = row.given;
        given.accumulation_steps = row.rows / row.given;
        TuningLimits limits = few_limits(row.rows, 1);
        limits.micro_sizes = row.most;
        CAPTURE(row.rows, row.given, row.most);
        CHECK(micro_batches(tuning_space(given, limits)) == row.expected);
    }
}

TEST_CASE("limits of the micro batch leave out others, but never the given one") {
    TunedSettings given;
    given.accumulation_steps = 16;
    TuningLimits limits = few_limits(16, 1);
    limits.micro_rows_min = 4;
    limits.micro_rows_max = 8;
    CHECK(micro_batches(tuning_space(given, limits)) == std::set<int64_t>{1, 4, 8});
}

TEST_CASE("a single rank divides nothing, so a higher stage is considered only for the disk") {
    TunedSettings given;
    CHECK(tuning_space(given, few_limits(1, 1)).size() == 1);
    given.stage = 2;
    CHECK(tuning_space(given, few_limits(1, 1)).size() == 2);
    CHECK(tuning_space(given, few_limits(1, 2)).size() == 4);
    TuningLimits fixed = few_limits(1, 2);
    fixed.stages.clear();
    CHECK(tuning_space(given, fixed).size() == 1);
}

TEST_CASE("buckets that mean the same are considered once") {
    TunedSettings given;  // 500 M elements: one bucket
    TuningLimits limits = few_limits(1, 1);
    limits.tunes_buckets = true;
    limits.trained_numel = 100'000;  // a fourth is below the smallest bucket, 64 Ki
    const std::vector<TunedSettings> space = tuning_space(given, limits);
    REQUIRE(space.size() == 2);
    CHECK(space[1].bucket_numel == 65'536);
}

TEST_CASE("overrides name the settings that differ, and nothing else") {
    TunedSettings given;
    given.micro_rows = 4;
    given.stage = 3;
    given.parameters_on_disk = true;
    CHECK(tuning_overrides(given, given, 8, "").empty());
    TunedSettings chosen;
    chosen.micro_rows = 2;
    chosen.accumulation_steps = 2;
    chosen.stage = 1;
    chosen.recompute_groups = 3;
    chosen.optimizer_on_disk = true;
    chosen.bucket_numel = 70'000;
    CHECK(tuning_overrides(chosen, given, 8, "/a \"b\"") ==
          Words{"train_batch_size=8", "train_micro_batch_size_per_gpu=2",
                "gradient_accumulation_steps=2", "zero_optimization.stage=1",
                "activation_checkpointing.number_checkpoints=3",
                "zero_optimization.reduce_bucket_size=70000",
                "zero_optimization.offload_optimizer.device=nvme",
                "zero_optimization.offload_optimizer.nvme_path=\"/a \\\"b\\\"\"",
                "zero_optimization.offload_param.device=none"});
    CHECK(differences(chosen, given) == 6);
    CHECK(settings_text(chosen) ==
          "micro batch 2 x 2, ZeRO 1, recompute 3, states on disk, buckets of 70000");
    given.recompute_groups = 2;
    chosen = given;
    chosen.recompute_groups = 0;
    CHECK(tuning_overrides(chosen, given, 8, "") ==
          Words{"activation_checkpointing.number_checkpoints=null"});
}

// Every fixture at ZeRO stages 1 to 3, compared bit by bit with stage 0 of the same world: losses,
// norms, overflows, parameters, buffers, and each parameter's number of updates.
#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <fmt/ranges.h>

#include "fixture_world.h"
#include "support/catch.h"
#include "support/every_nth.h"

namespace dslaunch {

using namespace graph;
namespace {

using testing::fixture_case;
using testing::RankOutcome;
using testing::TrainingCase;
using Sizes = std::vector<int>;

std::string sizes_text(const Sizes& sizes) {
    return fmt::format("{}", fmt::join(sizes, "+"));
}

void check_equal_tensors(const testing::Parameters& a, const testing::Parameters& b) {
    REQUIRE(a.size() == b.size());
    for (const auto& [name, tensor] : a) {
        INFO(name);
        CHECK(tensor.scalar_type() == b.at(name).scalar_type());
        CHECK(at::equal(tensor, b.at(name)));
    }
}

// Checks that A and B have the same bits. NaN is equal to nothing, so a run that computes it would
// prove nothing.
void check_equal_bits(const RankOutcome& a, const RankOutcome& b) {
    CHECK(a.loss == b.loss);
    CHECK(a.norm == b.norm);
    CHECK(a.updates == b.updates);
    CHECK(a.losses() == b.losses());
    check_equal_tensors(a.parameters, b.parameters);
    check_equal_tensors(a.buffers, b.buffers);
}

// Returns a case of a fixture, a world and a precision. NUMBER chooses the rest, so that each
// fixture meets each setting somewhere.
TrainingCase chosen_case(const std::string& name, const Sizes& sizes, DType dtype, size_t number) {
    TrainingCase job = fixture_case(name, sizes);
    job.micro_step = true;
    job.precision.compute = dtype;
    job.clipping = number % 2 == 0 ? 0.5 : 0;
    job.accumulation = number % 3 == 0 ? 2 : 1;
    // A second forward would write a written attribute twice.
    job.recompute_groups = number % 4 < 2 && name != "state" ? 2 : 0;
    job.persistent_numel_max = number % 5 == 0 ? 64 : 0;
    job.steps = 2;
    return job;
}

// Compares each rank of each stage with the same rank of stage 0, because running averages are a
// rank's own.
void check_stages(TrainingCase job) {
    INFO(job.name << " on " << sizes_text(job.node_sizes) << ", dtype "
                  << static_cast<int>(job.precision.compute) << ", clipping " << job.clipping
                  << ", accumulation " << job.accumulation << ", recompute groups "
                  << job.recompute_groups << ", persistent " << job.persistent_numel_max);
    job.stage = 0;
    const std::vector<RankOutcome> replicated = testing::train_world(job);
    REQUIRE(replicated[0].losses().size() == static_cast<size_t>(job.steps));
    for (job.stage = 1; job.stage <= 3; ++job.stage) {
        INFO("stage " << job.stage);
        const std::vector<RankOutcome> sharded = testing::train_world(job);
        for (size_t rank = 0; rank < sharded.size(); ++rank) {
            INFO("rank " << rank);
            check_equal_bits(sharded[rank], replicated[rank]);
        }
    }
}

const Sizes kFixtureWorlds[] = {{1}, {2}, {3}, {2, 1}, {1, 1}};
constexpr DType kDtypes[] = {DType::kF32, DType::kBF16};

}  // namespace

TEST_CASE("every fixture has at stages 1, 2 and 3 the bits of stage 0", "[matrix]") {
    at::set_num_threads(1);
    size_t number = 0;
    for (const std::string& name : test::fixture_names()) {
        // Each fixture has a world and a precision, and the next fixture has others. In the whole
        // matrix, both precisions are used. bf16 is over two hosts or three ranks.
        const Sizes& fp32_sizes = kFixtureWorlds[number % std::size(kFixtureWorlds)];
        const Sizes& half_sizes = kFixtureWorlds[2 + number % 3];
        if (number % 2 == 0 || test::whole_matrix())
            check_stages(chosen_case(name, fp32_sizes, DType::kF32, number));
        if (number % 2 == 1 || test::whole_matrix())
            check_stages(chosen_case(name, half_sizes, DType::kBF16, number + 1));
        ++number;
    }
}

namespace {

// ALL: each model and world in every precision. Otherwise it has one precision, in turn.
void check_copies(bool all) {
    at::set_num_threads(1);
    size_t number = 0;
    for (const std::string name : {"gpt-tied", "mixture", "tied-frozen-unused"})
        for (const Sizes& sizes : {Sizes{1, 1}, {2, 2}, {3, 3}, {2, 2, 2}})
            for (const DType dtype : kDtypes) {
                TrainingCase job = chosen_case(name, sizes, dtype, number++);
                if (!all && dtype != kDtypes[number / std::size(kDtypes) % std::size(kDtypes)])
                    continue;
                job.shard_group = sizes[0];
                check_stages(job);
                // Stage 3 sends between hosts what stage 0 sends: gradients, and no parameters.
                const auto sent = [&](int stage) {
                    job.stage = stage;
                    const testing::TrainingSetup setup(job);
                    return testing::Planned(job, setup, {sizes, 0, 0}).plan.sent().value;
                };
                job.micro_step = true;
                CHECK(sent(0) > 0);
                CHECK(sent(3) == sent(0));
            }
}

}  // namespace

TEST_CASE("hosts that hold copies of what their ranks shard have the bits of stage 0") {
    check_copies(false);
}

TEST_CASE("hosts that hold copies have the bits of stage 0 in every precision", "[.long]") {
    check_copies(true);
}

TEST_CASE("every fixture has at every stage the bits of stage 0, in every small world", "[.long]") {
    at::set_num_threads(1);
    size_t number = 0;
    for (const std::string& name : test::fixture_names())
        for (const Sizes& sizes : {Sizes{1}, {2}, {3}, {4}, {5}, {8}, {2, 1}, {1, 1}, {1, 2, 1}})
            for (const DType dtype : kDtypes)
                // With three consecutive numbers, each world gets clipping, accumulation and
                // neither.
                for (int i = 0; i < 3; ++i) check_stages(chosen_case(name, sizes, dtype, number++));
}

TEST_CASE("frozen and unused parameters come out of every stage as they went in") {
    at::set_num_threads(1);
    const test::Fixture fixture = test::Fixture::load("tied-frozen-unused");
    for (const DType dtype : kDtypes)
        for (const int stage : {0, 1, 2, 3})
            for (const Sizes& sizes : {Sizes{3}, {2, 1}}) {
                TrainingCase job = chosen_case("tied-frozen-unused", sizes, dtype, 0);
                job.stage = stage;
                INFO("stage " << stage << " on " << sizes_text(sizes));
                const RankOutcome trained = testing::train_world(job)[0];
                size_t still = 0;
                for (const ModelParameter& parameter : fixture.model.parameters()) {
                    if (trained.updates.count(parameter.name) > 0) continue;
                    INFO(parameter.name);
                    CHECK(at::equal(trained.parameters.at(parameter.name),
                                    parameter.tensor.detach()));
                    ++still;
                }
                CHECK(still >= 2);
            }
}

TEST_CASE("shards by layer, module and row train to the bits of flat ones") {
    at::set_num_threads(1);
    for (const std::string name : {"gpt-tied", "mixture"})
        for (const Sizes& sizes : {name == "mixture" ? Sizes{2, 1} : Sizes{3}})
            for (const double clipping : {0.0, 0.5}) {
                TrainingCase job = fixture_case(name, sizes);
                job.micro_step = true;
                job.clipping = clipping;
                const RankOutcome flat = testing::train_world(job)[0];
                for (const ShardBy shard : {ShardBy::kLayer, ShardBy::kGroup, ShardBy::kRow})
                    for (const int stage : {1, 2, 3}) {
                        INFO(name << " on " << sizes_text(sizes) << ", clipping " << clipping
                                  << ", shard " << static_cast<int>(shard) << ", stage " << stage);
                        job.shard = shard;
                        job.stage = stage;
                        const RankOutcome trained = testing::train_world(job)[0];
                        if (shard != ShardBy::kRow || clipping == 0) {
                            check_equal_bits(trained, flat);
                            continue;
                        }
                        // Shards that end within a block of the norm sum it in another order. Its
                        // last bits change the clip factor by 1e-7 of itself.
                        for (size_t step = 0; step < 3; ++step)
                            CHECK(std::abs(trained.losses()[step] - flat.losses()[step]) < 1e-6);
                    }
            }
}

}  // namespace dslaunch

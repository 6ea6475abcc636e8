// Training with optimizer states and parameters on disk has the bits of training in memory: stages,
// worlds, precision, buffers, clipping, accumulation, overflows.
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <malloc.h>

#include <array>
#include <cmath>
#include <filesystem>

#include "fixture_world.h"
#include "support/catch.h"
#include "support/every_nth.h"

namespace dslaunch {

using namespace config;
using namespace graph;
using namespace plan;
namespace {

using testing::equal_bits;
using testing::RankOutcome;
using testing::TrainingCase;

// Returns a job with buckets of a parameter or two, and chunks of 48 elements, so that some
// parameters take several chunks.
TrainingCase offload_case(std::vector<int> sizes, int stage) {
    TrainingCase job{"offload", std::move(sizes)};
    job.optimizer.lr = 0.01;
    job.optimizer.weight_decay = 0.1;
    job.stage = stage;
    job.micro_step = true;
    job.bucket_numel_max = 200;
    job.steps = 4;
    return job;
}

// A step's use of its gradients: how many micro steps are added up, and whether a norm must be
// known first.
struct Sums {
    int64_t accumulation = 1;
    double clipping = 0;
};
constexpr Sums kSums[] = {{1, 0}, {1, 0.05}, {2, 0}, {2, 0.05}, {3, 0.05}};

void check_offload(TrainingCase job, std::initializer_list<OffloadPlan> offloads) {
    job.offload = {};
    const RankOutcome in_memory = testing::train_world(job).front();
    for (const OffloadPlan& offload : offloads) {
        job.offload = offload;
        INFO("stage " << job.stage << " on " << job.world_size() << " ranks of "
                      << job.node_sizes.size() << " hosts, accumulation " << job.accumulation
                      << ", clipping " << job.clipping << ", parameters " << offload.parameters
                      << ", states " << offload.states << ", buffers " << offload.swap_buffers
                      << ", ratio " << offload.ratio);
        for (const RankOutcome& rank : testing::train_world(job))
            CHECK(equal_bits(rank, in_memory));
    }
}

// Checks a placement that changes at several steps, from no kept chunk to all and back.
void check_changes(TrainingCase job, bool parameters) {
    job.steps = 9;
    job.offload = {};
    const RankOutcome in_memory = testing::train_world(job).front();
    for (const int64_t buffers : {2, 6})
        for (const double ratio : {1.0, 0.5}) {
            INFO("stage " << job.stage << " on " << job.world_size() << " ranks of "
                          << job.node_sizes.size() << " hosts, accumulation " << job.accumulation
                          << ", clipping " << job.clipping << ", parameters " << parameters
                          << ", buffers " << buffers << ", ratio " << ratio);
            job.offload = {true, parameters, 48, buffers, ratio};
            job.offload.adaptive = true;
            if (buffers > kLfuPassingBuffers) job.offload.eviction = EvictionRule::kLfu;
            job.kept_after = {{1, 3}, {2, 4}, {4, 1}, {5, 1 << 20}, {7, 2}, {8, 0}};
            for (const RankOutcome& rank : testing::train_world(job))
                CHECK(equal_bits(rank, in_memory));
        }
}

// Returns rank 0's bytes of KIND in the last line of metrics.
int64_t memory_of(const TrainingCase& job, const char* kind) {
    const nlohmann::json last = testing::train_world(job).front().metrics.back();
    return last.at("memory").at(kind).get<int64_t>();
}

// Returns the mean loss of the last ten steps, since single losses jump with their batch.
double late_loss(const TrainingCase& job) {
    const std::vector<double> losses = testing::train_world(job).front().losses();
    double sum = 0;
    for (size_t i = losses.size() - 10; i < losses.size(); ++i) sum += losses[i];
    return sum / 10;
}

constexpr std::array<StatePacking, kMomentsMax> kBf16Moments{StatePacking::kBf16,
                                                             StatePacking::kBf16};
constexpr std::array<StatePacking, kMomentsMax> kInt8Moments{StatePacking::kInt8,
                                                             StatePacking::kUint8Root};

}  // namespace

TEST_CASE("what is compressed without loss has the bits of memory", "[matrix]") {
    test::EveryNth cases(5);
    for (const std::vector<int>& sizes : {std::vector<int>{1}, {3}, {2, 1}})
        for (const DType dtype : {DType::kF32, DType::kBF16})
            for (const int64_t buffers : {2, 64}) {
                if (!cases.takes_next()) continue;
                TrainingCase job = offload_case(sizes, 3);
                job.precision.compute = dtype;
                job.clipping = 0.05;
                // Chunks of several pages, so that some are shorter on disk.
                check_offload(job, {{true, true, 48, buffers, 1.0, {}, true},
                                    {true, false, 4096, buffers, 1.0, {}, true},
                                    {false, true, 48, buffers, 1.0, {}, true}});
            }
}

TEST_CASE("with rounded moments 200 steps come as far as with fp32") {
    for (const OptimizerKind kind :
         {OptimizerKind::kAdamW, OptimizerKind::kLion, OptimizerKind::kAdagrad}) {
        TrainingCase job = offload_case({2}, 3);
        job.optimizer.kind = kind;
        job.optimizer.lr = kind == OptimizerKind::kLion ? 0.002 : 0.01;
        job.steps = 200;
        job.offload = {true, true, 48, 2};
        const std::vector<double> all = testing::train_world(job).front().losses();
        const double plain = late_loss(job);
        for (const bool int8 : {false, true}) {
            job.offload.packings = int8 ? kInt8Moments : kBf16Moments;
            if (int8 && kind == OptimizerKind::kAdagrad)
                job.offload.packings[0] = StatePacking::kUint8Root;
            job.offload.lossless = int8;
            const double packed = late_loss(job);
            INFO("optimizer " << static_cast<int>(kind) << ", int8 " << int8 << ": " << packed
                              << " for " << plain << " from " << all.front());
            CHECK(packed != plain);
            // Measured: at most 0.0009 of what was learnt.
            CHECK(std::fabs(packed - plain) < 0.005 * (all.front() - plain));
        }
    }
}

TEST_CASE("the third state of amsgrad goes to disk and comes back with its bits") {
    for (const int stage : {1, 3}) {
        TrainingCase job = offload_case({2}, stage);
        job.optimizer.amsgrad = true;
        job.optimizer.beta2 = 0.5;
        job.clipping = 0.05;
        check_offload(job, {{true, stage == 3, 48, 2},
                            {true, stage == 3, 48, 3, 0.5},
                            {true, stage == 3, 4096, 2, 1.0, {}, true}});
        job.optimizer.amsgrad = false;
        const RankOutcome without = testing::train_world(job).front();
        job.optimizer.amsgrad = true;
        CHECK_FALSE(equal_bits(testing::train_world(job).front(), without));
    }
}

TEST_CASE("rounded moments are the same in every run") {
    TrainingCase job = offload_case({2, 1}, 3);
    job.offload = {true, true, 48, 2, 1.0, kInt8Moments};
    const RankOutcome first = testing::train_world(job).front();
    for (const RankOutcome& rank : testing::train_world(job)) CHECK(equal_bits(rank, first));
}

TEST_CASE("with optimizer states on disk stages 1, 2 and 3 have the bits of memory", "[matrix]") {
    test::EveryNth cases(4);
    for (const std::vector<int>& sizes : {std::vector<int>{1}, {2}, {3}, {1, 1}, {2, 1}})
        for (const int stage : {1, 2, 3})
            for (const Sums& sums : kSums) {
                if (!cases.takes_next()) continue;
                TrainingCase job = offload_case(sizes, stage);
                job.accumulation = sums.accumulation;
                job.clipping = sums.clipping;
                check_offload(job, {{true, false, 48, 2}, {true, false, 48, 5, 0.5}});
            }
}

TEST_CASE("with parameters on disk too, training has the bits of memory", "[matrix]") {
    test::EveryNth cases(5);
    for (const std::vector<int>& sizes : {std::vector<int>{1}, {2}, {3}, {5}, {1, 1}, {2, 1}})
        for (const double clipping : {0.0, 0.05})
            for (const int64_t groups : {0, 2}) {
                if (!cases.takes_next()) continue;
                TrainingCase job = offload_case(sizes, 3);
                job.clipping = clipping;
                job.recompute_groups = groups;
                OffloadPlan lfu{true, true, 48, 7};
                lfu.eviction = EvictionRule::kLfu;
                check_offload(job, {{true, true, 48, 2},
                                    {true, true, 48, 64},
                                    {false, true, 48, 2},
                                    {true, true, 48, 3, 0.5},
                                    lfu});
            }
}

TEST_CASE("with a part of the parameters left in memory, training has the bits of memory",
          "[matrix]") {
    test::EveryNth cases(5);
    for (const std::vector<int>& sizes : {std::vector<int>{1}, {3}, {2, 1}})
        for (const DType dtype : {DType::kF32, DType::kBF16})
            for (const int64_t kept : {100, 250, 1 << 20})
                for (const bool states : {false, true}) {
                    if (!cases.takes_next()) continue;
                    TrainingCase job = offload_case(sizes, 3);
                    job.precision.compute = dtype;
                    OffloadPlan offload{states, true, 48, 2};
                    offload.parameter_numel_in_memory = kept;
                    check_offload(job, {offload});
                }
}

TEST_CASE("in half precision what is on disk has the bits of memory", "[matrix]") {
    test::EveryNth cases(7);
    for (const DType dtype : {DType::kBF16, DType::kF16})
        for (const std::vector<int>& sizes : {std::vector<int>{1}, {2}, {3}, {1, 1}, {2, 1}})
            for (const Sums& sums : {Sums{2, 0}, {1, 0.05}, {3, 0.05}}) {
                if (!cases.takes_next()) continue;
                TrainingCase job = offload_case(sizes, 3);
                job.precision.compute = dtype;
                job.accumulation = sums.accumulation;
                job.clipping = sums.clipping;
                check_offload(job, {{true, false, 48, 2}, {true, true, 48, 6}, {false, true, 48}});
                job.stage = sums.accumulation == 1 ? 1 : 2;
                check_offload(job, {{true, false, 48, 3}});
            }
}

TEST_CASE("the blocks of the norm are cut by chunks, or lie in several, and sum to the same bits",
          "[matrix]") {
    test::EveryNth cases(4);
    for (const ShardBy shard : {ShardBy::kFlat, ShardBy::kLayer, ShardBy::kRow})
        for (const int64_t block_numel : {16, 64, 1024})
            for (const int64_t chunk_numel : {16, 48, 128}) {
                if (!cases.takes_next()) continue;
                TrainingCase job = offload_case({3}, 2);
                job.shard = shard;
                job.block_numel = block_numel;
                job.clipping = 0.05;
                job.accumulation = 2;
                check_offload(job, {{true, false, chunk_numel, 2}});
            }
}

TEST_CASE("tied, frozen and unused parameters are offloaded as they train in memory", "[matrix]") {
    test::EveryNth cases(5);
    for (const std::vector<int>& sizes : {std::vector<int>{1}, {3}, {2, 1}})
        for (const DType dtype : {DType::kF32, DType::kBF16})
            for (const int stage : {1, 3}) {
                if (!cases.takes_next()) continue;
                TrainingCase job = testing::fixture_case("tied-frozen-unused", sizes);
                job.precision.compute = dtype;
                job.stage = stage;
                job.micro_step = true;
                job.clipping = 0.5;
                job.accumulation = 2;
                check_offload(job, {{true, stage == 3, 512, 3}, {true, false, 512, 4, 0.5}});
            }
}

void check_changes_in(const std::vector<std::vector<int>>& worlds, const std::vector<int>& stages) {
    for (const std::vector<int>& sizes : worlds)
        for (const int stage : stages)
            for (const DType dtype : {DType::kF32, DType::kBF16})
                for (const Sums& sums : {Sums{1, 0}, {2, 0.05}}) {
                    TrainingCase job = offload_case(sizes, stage);
                    job.precision.compute = dtype;
                    job.accumulation = sums.accumulation;
                    job.clipping = sums.clipping;
                    check_changes(job, false);
                    if (stage == 3) check_changes(job, true);
                }
}

TEST_CASE("chunks that move between memory and disk from step to step leave the bits of memory") {
    check_changes_in({{1}}, {3});
    check_changes_in({{2, 1}}, {2, 3});
}

TEST_CASE("chunks that move leave the bits of memory in every world", "[.long]") {
    check_changes_in({{1}, {2}, {3}, {2, 1}}, {1, 2, 3});
}

TEST_CASE("memory of chunks that are given back leaves the process, and its account") {
    // With this threshold, a gradient that is freed leaves the process at once, whatever was
    // allocated before it. The C library's own threshold follows the sizes that were freed.
    REQUIRE(::mallopt(M_MMAP_THRESHOLD, 256 << 10) == 1);
    constexpr int64_t kWidth = 2048;
    TrainingCase job{"wide"};
    job.make_model = [] {
        return testing::TrainedModel{
            test::script_model("def forward(self, x: Tensor, y: Tensor) -> Tensor:\n"
                               "    return (torch.matmul(x, self.w).mean() - y.mean()) ** 2\n",
                               {{"w", at::zeros({kWidth, kWidth})}}),
            {},
            [](const SegmentedModel&, int64_t) {
                return std::vector<c10::IValue>{at::ones({1, kWidth}), at::ones({1, 1})};
            }};
    };
    job.stage = 3;
    job.micro_step = true;
    job.clipping = 1;
    job.bucket_numel_max = kWidth * kWidth;
    job.block_numel = 16 * 1024;
    job.steps = 6;
    job.offload = {true, true, kWidth * kWidth / 16, 2};
    job.offload.adaptive = true;
    job.kept_after = {{2, 16}, {4, 0}};
    const std::vector<nlohmann::json> lines = testing::train_world(job).front().metrics;
    REQUIRE(lines.size() == 6);
    const auto memory = [&](size_t step, const char* kind) {
        return lines[step - 1].at("memory").at(kind).get<int64_t>();
    };
    const auto resident = [&](size_t step) {
        return lines[step - 1].at("rss_bytes").get<int64_t>();
    };
    const int64_t copy = 4 * kWidth * kWidth;
    CHECK(memory(4, "parameters") - memory(2, "parameters") == copy);
    CHECK(memory(4, "moments") == 2 * copy);
    CHECK(memory(4, "gradients") - memory(2, "gradients") == copy);
    for (const size_t step : {2, 6}) {
        CAPTURE(step, resident(step), resident(4), copy);
        CHECK(memory(step, "moments") == 0);
        // The states are parameters, two moments and the sums of gradients. Other memory comes and
        // goes.
        CHECK(std::llabs(resident(4) - resident(step) - 4 * copy) < copy / 4);
    }
}

TEST_CASE("gradients that wait for the norm leave memory with the states, but for their buffers") {
    for (const int stage : {1, 2, 3}) {
        TrainingCase job = offload_case({2}, stage);
        job.accumulation = 2;
        job.clipping = 0.05;
        const testing::TrainingSetup setup(job);
        int64_t own = 0;
        for (int b = 0; b < setup.layout.trained_buckets; ++b)
            own += setup.partition.owned_numel(0, b);
        CAPTURE(stage, own);
        const int64_t in_memory = memory_of(job, "gradients");
        job.offload = {true, false, 48, 2};
        CHECK(in_memory - memory_of(job, "gradients") == 4 * own);
        // Each of two buffers of 48 elements has two moments and sums, of one page each.
        CHECK(memory_of(job, "swap_buffers") == 2 * (2 + 1) * 4096);
        job.accumulation = 1;
        job.clipping = 0;
        CHECK(memory_of(job, "swap_buffers") == 2 * 2 * 4096);
    }
}

TEST_CASE("SGD with and without momentum is offloaded as Adam is") {
    for (const double momentum : {0.0, 0.9}) {
        TrainingCase job = offload_case({2}, 3);
        job.optimizer.kind = OptimizerKind::kSgd;
        job.optimizer.momentum = momentum;
        job.clipping = 0.05;
        check_offload(job, {{true, false, 48, 2}, {true, true, 48, 2}});
    }
}

TEST_CASE("under LFU all buffers but four keep their chunks, which are neither read nor written") {
    TrainingCase job = offload_case({1}, 3);
    // Bytes that the last step reads and writes, in chunks: two moments of a page each.
    const auto moved = [&](int64_t buffers, EvictionRule eviction) {
        job.offload = {true, false, 48, buffers};
        job.offload.eviction = eviction;
        const std::vector<nlohmann::json> lines = testing::train_world(job).front().metrics;
        const auto bytes = [&](const char* way) {
            const auto until = [&](size_t line) {
                return lines[line].at("disk_bytes").at(way).get<int64_t>();
            };
            return until(lines.size() - 1) - until(lines.size() - 2);
        };
        CHECK(bytes("read") == bytes("written"));
        CHECK(bytes("read") % 8192 == 0);
        return bytes("read") / 8192;
    };
    const int64_t chunks = moved(2, EvictionRule::kFifo);
    REQUIRE(chunks > 9);
    CHECK(moved(4, EvictionRule::kLfu) == chunks);
    CHECK(moved(5, EvictionRule::kFifo) == chunks);
    CHECK(moved(5, EvictionRule::kLfu) == chunks - 1);
    CHECK(moved(9, EvictionRule::kLfu) == chunks - 5);
    CHECK(moved(chunks, EvictionRule::kLfu) == 0);
}

TEST_CASE("a step that overflows leaves what is on disk as it was") {
    for (const int64_t buffers : {2, 4, 6, 64})
        for (const bool parameters : {false, true}) {
            TrainingCase job = offload_case({2, 1}, 3);
            job.accumulation = buffers == 4 ? 2 : 1;
            job.clipping = buffers == 2 ? 0.05 : 0;
            job.precision.compute = DType::kF16;
            job.precision.skip_nonfinite_steps = true;
            // The first gradients overflow at 2^24, and no longer after some halvings.
            job.precision.loss_scale = {
                .dynamic = true, .initial = 1 << 24, .minimum = 1, .window = 2, .hysteresis = 1};
            // The last step is not skipped, because a skipped step's norm is equal to nothing.
            job.steps = 17;
            job.offload = {};
            const std::vector<RankOutcome> in_memory = testing::train_world(job);
            size_t skipped = 0;
            for (const auto& overflow : in_memory.front().overflows) skipped += overflow ? 1 : 0;
            CHECK(skipped > 1);
            CHECK(skipped < 12);
            job.offload = {true, parameters, 48, buffers};
            if (buffers == 6) job.offload.eviction = EvictionRule::kLfu;
            for (const RankOutcome& rank : testing::train_world(job))
                CHECK(equal_bits(rank, in_memory.front()));
        }
}

}  // namespace dslaunch

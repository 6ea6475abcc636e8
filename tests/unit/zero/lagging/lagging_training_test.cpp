// Updates that lag (ZenFlow), through the real trainer: compared with the algorithm written once
// more, over worlds, ZeRO stages, offload, 16 bits and overflows, and saved and resumed.
#include <ATen/Parallel.h>

#include <cmath>

#include "support/catch.h"
#include "support/temporary_folder.h"
#include "unit/zero/lagging/lagging_reference.h"

namespace dslaunch {

using namespace config;
using namespace plan;
using namespace storage;
namespace {

using testing::equal_bits;
using testing::LaggingReference;
using testing::RankOutcome;
using testing::TrainingCase;

TrainingCase lagging_case(std::vector<int> sizes, bool overlap, int stage = 0) {
    TrainingCase job{"lagging", std::move(sizes)};
    job.optimizer.lr = 0.01;
    job.optimizer.weight_decay = 0.1;
    job.stage = stage;
    job.bucket_numel_max = 200;
    job.make_model = testing::plain_model;
    job.lagging = {true, 0.25, 3, 6, overlap, 2};
    job.steps = 24;
    return job;
}

// Returns the largest distance of a parameter from the reference's.
double distance(const TrainingCase& job, const RankOutcome& outcome, LaggingReference& reference,
                int64_t first = 1) {
    at::set_num_threads(1);
    for (int64_t t = first; t <= job.steps; ++t) static_cast<void>(reference.step(t));
    double worst = 0;
    for (const auto& [name, tensor] : outcome.parameters) {
        const at::Tensor flat = tensor.contiguous();
        const float* p = flat.const_data_ptr<float>();
        const testing::LagFloats& expected = reference.of(name);
        for (size_t i = 0; i < expected.size(); ++i)
            worst = std::max(worst, std::abs(double{p[i]} - expected[i]));
    }
    return worst;
}

void check_same(TrainingCase job, const RankOutcome& expected) {
    INFO("stage " << job.stage << " on " << job.world_size() << " ranks of "
                  << job.node_sizes.size() << " hosts, overlap " << job.lagging.overlap
                  << ", accumulation " << job.accumulation << ", clipping " << job.clipping
                  << ", on disk " << job.offload.states << ", ratio " << job.offload.ratio);
    for (const RankOutcome& rank : train_world(job)) CHECK(equal_bits(rank, expected));
}

// Makes steps of all kinds overflow now and then: the scale doubles after each step without an
// overflow.
void overflow_often(TrainingCase& job) {
    job.precision.compute = DType::kF16;
    job.precision.skip_nonfinite_steps = true;
    job.precision.loss_scale.dynamic = true;
    job.precision.loss_scale.initial = 0x1p24;
    job.precision.loss_scale.window = 1;
}

}  // namespace

TEST_CASE("steps whose updates lag are those of the algorithm, at every number of ranks") {
    for (const std::vector<int>& sizes :
         {std::vector<int>{1}, {2}, {3}, {5}, {1, 1}, {2, 2}, {2, 1}})
        for (const bool overlap : {false, true})
            for (const double clipping : {0.0, 0.05})
                for (const int stage : {0, 1, 2, 3}) {
                    TrainingCase job = lagging_case(sizes, overlap, stage);
                    job.clipping = clipping;
                    const std::vector<RankOutcome> ranks = train_world(job);
                    for (const RankOutcome& rank : ranks) CHECK(equal_bits(rank, ranks[0]));
                    LaggingReference reference(job);
                    INFO(job.world_size()
                         << " ranks of " << sizes.size() << " hosts, overlap " << overlap
                         << ", clipping " << clipping << ", stage " << stage);
                    CHECK(distance(job, ranks[0], reference) == 0);
                }
}

TEST_CASE("intervals, warm-up, units and decay of lagging updates are those of the algorithm") {
    for (const bool overlap : {false, true})
        for (const LaggingConfig& lagging : {LaggingConfig{true, 0.5, 1, 1, overlap, 0},
                                             LaggingConfig{true, 0.25, 1, 4, overlap, 5},
                                             LaggingConfig{true, 0.01, 8, 8, overlap, 0},
                                             LaggingConfig{true, 0.75, 5, 10, overlap, 1}})
            for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW})
                for (const int64_t unit : {1, 4, 16}) {
                    TrainingCase job = lagging_case({2}, overlap);
                    job.lagging = lagging;
                    job.optimizer.kind = kind;
                    job.unit_numel = unit;
                    LaggingReference reference(job);
                    INFO("update_interval " << lagging.update_interval << ", overlap " << overlap
                                            << ", units of " << unit);
                    CHECK(distance(job, train_world(job).front(), reference) == 0);
                }
}

// The controls of the tests above.
TEST_CASE("another choice, and another decay, train another way") {
    const TrainingCase job = lagging_case({2}, false);
    const RankOutcome outcome = train_world(job).front();
    LaggingReference smallest(job), undecayed(job);
    smallest.largest = false;
    undecayed.decays_by_steps = false;
    CHECK(distance(job, outcome, smallest) > 1e-3);
    CHECK(distance(job, outcome, undecayed) > 1e-3);
}

TEST_CASE("an interval of one step is the exact run, and a longer one is not") {
    for (const int stage : {0, 1, 3}) {
        TrainingCase job = lagging_case({2}, false, stage);
        job.clipping = 0.05;
        TrainingCase exact = job;
        exact.lagging = {};
        const RankOutcome expected = train_world(exact).front();
        job.lagging.update_interval = 1;
        check_same(job, expected);
        job.lagging.update_interval = 3;
        CHECK(!equal_bits(train_world(job).front(), expected));
        // With overlap the rest is updated a step late, so its update is missing after the last
        // step.
        job.lagging.update_interval = 1;
        job.lagging.overlap = true;
        CHECK(!equal_bits(train_world(job).front(), expected));
    }
}

TEST_CASE("stages, hosts, micro steps and disks change no bit of lagging updates") {
    for (const bool overlap : {false, true})
        for (const int64_t accumulation : {1, 3})
            for (const double clipping : {0.0, 0.05}) {
                TrainingCase job = lagging_case({2}, overlap);
                job.micro_step = true;
                job.accumulation = accumulation;
                job.clipping = clipping;
                const RankOutcome expected = train_world(job).front();
                for (const int stage : {1, 2, 3}) {
                    TrainingCase other = job;
                    other.stage = stage;
                    check_same(other, expected);
                    for (const double ratio : {1.0, 0.5})
                        for (const int64_t buffers : {2, 5}) {
                            other.offload = {true, false, 48, buffers, ratio};
                            check_same(other, expected);
                        }
                }
                TrainingCase one_bucket = job;
                one_bucket.bucket_numel_max = 1 << 20;
                check_same(one_bucket, expected);
            }
}

TEST_CASE("a parameter without a gradient in some steps lags alike everywhere") {
    for (const bool overlap : {false, true}) {
        TrainingCase job = lagging_case({2}, overlap);
        job.make_model = testing::small_model;
        job.micro_step = true;
        const RankOutcome expected = train_world(job).front();
        CHECK(expected.updates.at("extra") < expected.updates.at("w1"));
        for (const int stage : {1, 2, 3}) {
            job.stage = stage;
            check_same(job, expected);
        }
    }
}

TEST_CASE("16-bit parameters lag, and overflows skip steps of every kind") {
    for (const bool overlap : {false, true}) {
        TrainingCase job = lagging_case({2}, overlap);
        job.micro_step = true;
        overflow_often(job);
        job.steps = 39;
        const RankOutcome expected = train_world(job).front();
        REQUIRE(!expected.overflows.back());  // its norm is a number
        int skipped = 0;
        for (const auto& overflow : expected.overflows) skipped += overflow ? 1 : 0;
        CHECK(skipped > 8);
        CHECK(expected.updates.at("w1") == 39 - skipped);
        CHECK(std::isfinite(expected.losses().back()));
        for (const int stage : {1, 2, 3}) {
            TrainingCase other = job;
            other.stage = stage;
            check_same(other, expected);
            other.offload = {true, false, 48, 3};
            check_same(other, expected);
        }
    }
}

// A skipped step changes only the scale, so the updates are the same as in a run without it.
TEST_CASE("a late update is done once, whatever is skipped behind it") {
    TrainingCase job = lagging_case({1}, true);
    overflow_often(job);
    job.lagging = {true, 0.25, 1, 2, true, 0};
    job.steps = 29;
    const RankOutcome often = train_world(job).front();
    REQUIRE(!often.overflows.back());
    int skipped = 0;
    for (const auto& overflow : often.overflows) skipped += overflow ? 1 : 0;
    REQUIRE(skipped > 4);
    CHECK(often.updates.at("w1") == 29 - skipped);
    job.stage = 2;
    check_same(job, often);
}

TEST_CASE(
    "a job whose updates lag resumes in any step with the bits of one that was never stopped") {
    for (const bool overlap : {false, true})
        for (const bool on_disk : {false, true})
            for (const int stage : {0, 2})
                for (const int64_t stop : {1, 2, 3, 4, 5, 6, 8, 9, 11, 14}) {
                    if (on_disk && stage == 0) continue;
                    const test::TemporaryFolder folder("/dev/shm");
                    const std::unique_ptr<FileTree> tree = make_disk_tree();
                    TrainingCase job = lagging_case({2}, overlap, stage);
                    job.micro_step = true;
                    if (on_disk) job.offload = {true, false, 48, 3};
                    job.steps = 18;
                    const RankOutcome whole = train_world(job).front();
                    job.tree = tree.get();
                    job.root = folder.path() + "/whole";
                    job.save.interval = stop;
                    check_same(job, whole);  // saves change no bit
                    job.root = folder.path() + "/parts";
                    job.steps = stop;
                    train_world(job);
                    job.steps = 18;
                    job.resume_from = fmt::format("{}/step-{}", job.root, stop);
                    INFO("overlap " << overlap << ", on disk " << on_disk << ", stage " << stage
                                    << ", stopped after " << stop);
                    for (const RankOutcome& rank : train_world(job)) CHECK(equal_bits(rank, whole));
                }
}

// An update of the rest takes the mean of all gradients that wait, whatever made them wait.
TEST_CASE("a job resumes with other intervals, warm-ups and overlap as the algorithm does") {
    const LaggingConfig before[] = {{true, 0.25, 3, 6, false, 2}, {true, 0.25, 3, 6, true, 2}};
    const LaggingConfig after[] = {{true, 0.25, 4, 8, false, 2},
                                   {true, 0.25, 4, 8, true, 2},
                                   {true, 0.25, 2, 2, true, 1},
                                   {true, 0.25, 3, 6, false, 12},
                                   {true, 0.25, 3, 6, true, 12}};
    for (const LaggingConfig& first : before)
        for (const LaggingConfig& second : after)
            for (const int64_t stop : {5, 6, 7, 8, 9}) {
                const test::TemporaryFolder folder("/dev/shm");
                const std::unique_ptr<FileTree> tree = make_disk_tree();
                TrainingCase job = lagging_case({2}, false, 1);
                job.lagging = first;
                job.tree = tree.get();
                job.root = folder.path() + "/run";
                job.steps = job.save.interval = stop;
                train_world(job);
                LaggingReference reference(job);
                at::set_num_threads(1);
                for (int64_t t = 1; t <= stop; ++t) static_cast<void>(reference.step(t));
                job.lagging = second;
                job.steps = 20;
                job.resume_from = fmt::format("{}/step-{}", job.root, stop);
                const RankOutcome outcome = train_world(job).front();
                reference.go_on();
                INFO("interval " << first.update_interval << " to " << second.update_interval
                                 << ", overlap " << first.overlap << " to " << second.overlap
                                 << ", warm-up " << second.warm_up_steps << ", stopped after "
                                 << stop);
                CHECK(distance(job, outcome, reference, stop + 1) == 0);
            }
}

TEST_CASE("gradients that wait go on at another stage, in another place and without lagging") {
    const test::TemporaryFolder folder("/dev/shm");
    const std::unique_ptr<FileTree> tree = make_disk_tree();
    TrainingCase job = lagging_case({2}, true);
    job.micro_step = true;
    job.tree = tree.get();
    job.root = folder.path() + "/first";
    job.steps = 8;  // gradients wait under a choice that changes with the next step
    train_world(job);
    job.resume_from = job.root + "/step-8";
    job.steps = 18;
    const RankOutcome expected = train_world(job).front();
    job.stage = 3;
    job.root = folder.path() + "/other";
    check_same(job, expected);
    job.offload = {true, false, 48, 3};
    job.root = folder.path() + "/disk";
    check_same(job, expected);
    job.lagging = {};
    job.root = folder.path() + "/exact";
    const RankOutcome exact = train_world(job).front();
    CHECK(!equal_bits(exact, expected));
    CHECK(exact.updates.at("w1") == 18);
}

}  // namespace dslaunch

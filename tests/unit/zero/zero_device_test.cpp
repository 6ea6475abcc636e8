// Stage 0 on a device, over a backend that carries out collectives later, on a thread: compared
// with torch::optim, and bit for bit with ZeroState.
#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>

#include <cmath>

#include "device_world.h"
#include "fixture_world.h"
#include "graph/lower/cpu_products.h"
#include "optimizers.h"
#include "support/catch.h"
#include "support/device/test_backend.h"
#include "support/device/test_device.h"
#include "support/every_nth.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"
#include "training_reference.h"

namespace dslaunch {

using namespace config;
using namespace graph;
using namespace plan;
using namespace runtime;
using namespace storage;
using namespace zero;
namespace {

using test::TestBackend;
using testing::DeviceRank;
using testing::DeviceWorldOptions;
using testing::failure_of;
using testing::kAdagrad;
using testing::kAdamL2;
using testing::kAdamW;
using testing::kLion;
using testing::kSgd;
using testing::momentum_sgd;
using testing::RankOutcome;
using testing::small_model_on;
using testing::train_devices;
using testing::TrainingCase;

// The devices must be registered before the first backward of the process.
const bool kDevicesRegistered = (test::register_test_devices(), true);

void check_equal_on_device(const RankOutcome& a, const RankOutcome& b) {
    CHECK(a.loss == b.loss);
    CHECK(a.updates == b.updates);
    for (const auto& [name, tensor] : a.parameters) {
        INFO(name << " differs by " << (tensor - b.parameters.at(name)).abs().max().item<double>()
                  << " at most");
        CHECK(at::equal(tensor, b.parameters.at(name)));
    }
}

void check_device_reference(const TrainingCase& job) {
    INFO(job.name << " on " << job.world_size() << " ranks");
    const std::vector<DeviceRank> ranks = train_devices(job);
    const RankOutcome& first = ranks[0].outcome;
    for (const DeviceRank& rank : ranks) check_equal_on_device(rank.outcome, first);
    testing::check_near(first, testing::train_reference(job));
}

}  // namespace

// A test device has the CPU's operators, but for attention LibTorch takes other ones there: fused
// ones exist only for the CPU. AdamW's first steps move a parameter by the learning rate, 0.01
// here, whatever its gradient's size. If the gradient is near 0, rounding (6e-8) decides the
// direction. A bound of 1e-5 on a loss after three steps is above this effect; 1.4e-6 was seen.
TEST_CASE("every fixture trains on a device with the losses of the CPU's state") {
    at::set_num_threads(1);
    int equal = 0;
    for (const std::string& name : test::fixture_names())
        for (const int world_size : {1, 2}) {
            INFO(name << " on " << world_size << " ranks");
            const TrainingCase job = testing::fixture_case(name, {world_size});
            const RankOutcome here = testing::train_world(job)[0];
            const RankOutcome there = train_devices(job)[0].outcome;
            REQUIRE(here.losses().size() == 3);
            REQUIRE(there.losses().size() == 3);
            for (size_t step = 0; step < 3; ++step)
                CHECK(there.losses()[step] == Approx(here.losses()[step]).epsilon(1e-5));
            CHECK(there.updates == here.updates);
            equal += testing::equal_bits(there, here) ? 1 : 0;
        }
    std::printf("bits equal to the CPU's in %d of %zu jobs; %lld operators ran at once\n", equal,
                2 * test::fixture_names().size(),
                static_cast<long long>(test::operators_at_once()));
}

TEST_CASE("every rank on a device comes to the parameters of torch::optim", "[matrix]") {
    test::EveryNth cases(5);
    for (const std::vector<int>& sizes : {std::vector<int>{1}, {2}, {3}, {5}, {8}, {2, 1}})
        testing::for_each_optimizer(sizes, 2, {0.0, 0.05}, check_device_reference, cases);
}

TEST_CASE("without clipping a device's ranks have the bits of ZeroState") {
    for (const std::vector<int>& sizes : {std::vector<int>{1}, {2}, {3}, {8}})
        for (const bool micro_step : {false, true}) {
            TrainingCase job{"bits", sizes, kAdamL2, 2, 0, micro_step};
            job.bucket_numel_max = 200;
            INFO(job.world_size() << " ranks, micro_step " << micro_step);
            check_equal_on_device(train_devices(job)[0].outcome, testing::train_world(job)[0]);
        }
}

TEST_CASE("an Adam without bias correction is the CPU's too") {
    OptimizerConfig config = kAdamW;
    config.bias_correction = false;
    const TrainingCase job{"no correction", {2}, config};
    check_equal_on_device(train_devices(job)[0].outcome, testing::train_world(job)[0]);
}

// Hosts of one rank each add up in the order of ranks, like the test's devices.
RankOutcome train_on_hosts(TrainingCase job) {
    job.node_sizes.assign(static_cast<size_t>(job.world_size()), 1);
    return testing::train_world(job)[0];
}

void compute_in(DType dtype, TrainingCase& job) {
    job.precision.compute = dtype;
    job.precision.skip_nonfinite_steps = dtype == DType::kF16;
    job.precision.loss_scale.dynamic = dtype == DType::kF16;
    job.precision.loss_scale.initial = dtype == DType::kF16 ? 1024 : 1;
}

// Returns the jobs of a stage in a precision. Each option of a pair occurs at least once with each
// of the others.
std::vector<TrainingCase> jobs_of(int stage, DType dtype, int world_size) {
    std::vector<TrainingCase> jobs;
    for (int number = 0; number < 8; ++number) {
        const bool first = number % 2 != 0;
        const bool second = number / 2 % 2 != 0;
        const bool third = number / 4 != 0;
        TrainingCase job{"", {world_size}, third ? kAdamL2 : kAdamW};
        job.stage = stage;
        job.steps = 4;
        job.bucket_numel_max = 200;
        job.accumulation = first ? 2 : 1;
        job.micro_step = stage >= 2 || second;
        job.clipping = third ? 0.05 : 0;
        job.recompute_groups = first != second ? 2 : 0;
        compute_in(dtype, job);
        job.name = fmt::format(
            "stage {}, {}, {} ranks, accumulation {}, micro_step {}, clipping {}, recompute {}",
            stage, dtype_name(dtype), world_size, job.accumulation, job.micro_step, job.clipping,
            job.recompute_groups);
        jobs.push_back(std::move(job));
    }
    return jobs;
}

TEST_CASE("every stage in every precision has the bits of the CPU's hosts of one rank",
          "[matrix]") {
    test::EveryNth cases(5);
    use_wide_products();
    const WideProducts none(false, false);  // a device's products are LibTorch's own
    for (const int world_size : {1, 2, 3})
        for (int stage = 0; stage <= 3; ++stage)
            for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
                for (const TrainingCase& job : jobs_of(stage, dtype, world_size)) {
                    if (!cases.takes_next()) continue;
                    INFO(job.name);
                    const std::vector<DeviceRank> there = train_devices(job);
                    const RankOutcome here = train_on_hosts(job);
                    CHECK(there[0].outcome.norm == here.norm);
                    CHECK(there[0].outcome.losses() == here.losses());
                    for (const DeviceRank& rank : there) check_equal_on_device(rank.outcome, here);
                }
}

// CPU hosts with as many ranks as a group add up like two groups: first within them, then over
// them.
TEST_CASE("groups that hold copies have the bits of the CPU's hosts that hold copies", "[matrix]") {
    test::EveryNth cases(5);
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
        for (TrainingCase job : jobs_of(0, dtype, 4))
            for (job.stage = 1; job.stage <= 3; ++job.stage) {
                if (!cases.takes_next()) continue;
                job.shard_group = 2;
                job.micro_step = job.micro_step || job.stage >= 2;
                INFO(job.name << ", shards at stage " << job.stage);
                const std::vector<DeviceRank> there = train_devices(job);
                job.node_sizes = {2, 2};
                const RankOutcome here = testing::train_world(job)[0];
                job.node_sizes = {4};
                CHECK(there[0].outcome.norm == here.norm);
                CHECK(there[0].outcome.losses() == here.losses());
                for (const DeviceRank& rank : there) check_equal_on_device(rank.outcome, here);
            }
}

TEST_CASE("groups of every size come to the parameters of torch::optim", "[matrix]") {
    test::EveryNth cases(5);
    for (const auto& [ranks, group] :
         {std::pair{2, 1}, {4, 2}, {4, 1}, {6, 2}, {6, 3}, {8, 4}, {8, 2}})
        for (int stage = 1; stage <= 3; ++stage)
            for (const ShardBy shard : {ShardBy::kFlat, ShardBy::kRow}) {
                if (!cases.takes_next()) continue;
                TrainingCase job{"groups", {ranks}, kAdamW, 2, 0.05};
                job.name += fmt::format(" of {} at stage {}", group, stage);
                job.stage = stage;
                job.shard = shard;
                job.shard_group = group;
                check_device_reference(job);
            }
}

TEST_CASE("a group's parameters stay within it, and only sums of shards go to the other copies") {
    TrainingCase job{"bytes", {4}, kAdamW};
    job.stage = 3;
    job.steps = 1;
    job.shard_group = 2;
    const std::vector<std::string> calls = train_devices(job)[0].calls;
    CHECK(std::ranges::count(calls, "join") == 3);
    CHECK(std::ranges::count(calls, "all_reduce") == 0);
    const testing::TrainingSetup setup(job);
    const std::vector<int> alone(4, 1);
    const StepPlan grouped = testing::Planned(job, setup, {alone, 0, 0}).plan;
    job.shard_group = 0;
    const testing::TrainingSetup whole(job);
    const StepPlan sharded = testing::Planned(job, whole, {alone, 0, 0}).plan;
    CHECK(grouped.sent() < sharded.sent());
}

// From stage 1 on, the usage flags are sent over the hosts. Here, all ranks of the devices are on
// one host.
TEST_CASE("what devices send in a step is what the plan says") {
    for (const int group : {0, 2})
        for (int stage = 0; stage <= 3; ++stage) {
            TrainingCase job{"bytes", {4}, kAdamW};
            job.stage = stage;
            job.steps = 3;
            job.shard_group = stage > 0 ? group : 0;
            job.bucket_numel_max = 200;
            INFO("stage " << stage << ", groups of " << group);
            const std::vector<nlohmann::json> lines = train_devices(job)[0].outcome.metrics;
            const auto sent = [&](size_t step) {
                return lines.at(step).at("link_bytes").at("sent").get<int64_t>();
            };
            const testing::TrainingSetup setup(job);
            const StepPlan plan = testing::Planned(job, setup, {{1, 1, 1, 1}, 0, 0}).plan;
            int64_t flags = 0;
            for (int b = 0; b < setup.layout.trained_buckets; ++b)
                flags += flag_numel(setup.layout.buckets[b]);
            const int64_t by_hosts = stage == 0 ? 0 : flags * 3 * 4;  // to 3 ranks, in fp32
            const int64_t planned = plan.sent().value - by_hosts;
            // For sums that all get, the plan cuts at borders of lines.
            CHECK(sent(2) - sent(1) == Approx(static_cast<double>(planned)).epsilon(0.05));
        }
}

TEST_CASE("many ranks, and parameters smaller than their number, have the CPU's bits too") {
    for (const int world_size : {5, 8})
        for (int stage = 1; stage <= 3; ++stage) {
            TrainingCase job{"wide", {world_size}, kAdamW, 1, 0.05};
            job.stage = stage;
            job.steps = 3;
            INFO(world_size << " ranks, stage " << stage);
            check_equal_on_device(train_devices(job)[0].outcome, train_on_hosts(job));
        }
}

TEST_CASE("every fixture trains on devices at stages 1 to 3 with the CPU's losses", "[matrix]") {
    test::EveryNth cases(2);
    for (const std::string& name : test::fixture_names())
        for (int stage = 1; stage <= 3; ++stage) {
            if (!cases.takes_next()) continue;
            INFO(name << " at stage " << stage);
            TrainingCase job = testing::fixture_case(name, {2});
            job.stage = stage;
            const std::vector<double> here = train_on_hosts(job).losses();
            const RankOutcome there = train_devices(job)[0].outcome;
            REQUIRE(here.size() == there.losses().size());
            for (size_t step = 0; step < here.size(); ++step)
                CHECK(there.losses()[step] == Approx(here[step]).epsilon(1e-5));
        }
}

TEST_CASE("buckets go to their owners from stage 1 on, and to all at stage 0") {
    for (int stage = 0; stage <= 3; ++stage) {
        TrainingCase job{"order", {2}, kAdamW};
        job.stage = stage;
        job.steps = 1;
        const std::vector<std::string> calls = train_devices(job)[0].calls;
        const auto count = [&](const char* name) {
            return std::count(calls.begin(), calls.end(), name);
        };
        INFO("stage " << stage);
        CHECK(calls.front() == "join");
        CHECK((count("all_reduce") > 0) == (stage == 0));
        CHECK((count("reduce_ranges") > 0) == (stage > 0));
        CHECK((count("gather_ranges") > 0) == (stage > 0));
    }
}

// The negative control of the two streams: the sums are made before the gradients are there.
TEST_CASE("a reduction that does not wait for the backward before it changes the losses") {
    const TrainingCase job{"control", {2}, kAdamW};
    DeviceWorldOptions options;
    options.operator_delay = std::chrono::microseconds(500);
    const std::vector<double> right = train_devices(job, options)[0].outcome.losses();
    CHECK(right == testing::train_world(job)[0].losses());
    options.prepare = [](TestBackend& device) { device.forget_wait(0); };
    // If other work makes the host slow, only a slower device lets the sums come too early.
    bool has_changed = false;
    for (int64_t us = 500; !has_changed && us <= 32'000; us *= 4) {
        options.operator_delay = std::chrono::microseconds(us);
        has_changed = train_devices(job, options)[0].outcome.losses() != right;
    }
    CHECK(has_changed);
}

TEST_CASE("one rank alone joins nobody and reduces nothing") {
    const std::vector<std::string> calls = train_devices({"alone", {1}, kAdamW})[0].calls;
    for (const char* name : {"join", "broadcast", "all_reduce", "reduce_ranges", "gather_ranges"})
        CHECK(std::find(calls.begin(), calls.end(), name) == calls.end());
}

TEST_CASE("a model whose usage does not vary is asked once, and a change is not missed") {
    // All batches above 0.5, so that `extra` is used in every step.
    DeviceWorldOptions options;
    options.usage_varies = false;
    TrainingCase job{"static", {2}, kAdamW};
    job.make_model = small_model_on([](int64_t) { return testing::small_batch(0); });
    CHECK(train_devices(job, options)[0].outcome.updates.at("extra") == job.steps);
    job.make_model = small_model_on([](int64_t) { return testing::small_batch(2); });
    CHECK(train_devices(job, options)[0].outcome.updates.at("extra") == 0);
}

TEST_CASE("a gradient that is not finite ends the run with its name and changes no parameter") {
    TrainingCase job{"diverges", {2}, kAdamW, 1, 0.5};
    job.make_model = small_model_on([](int64_t micro_batch) {
        std::vector<c10::IValue> batch = testing::small_batch(micro_batch);
        // The batches of step 2 have infinite targets.
        if (micro_batch >= 2) batch[1] = batch[1].toTensor() * INFINITY;
        return batch;
    });
    const std::string text = failure_of(job, {}, ExitCode::kDiverged);
    CHECK_THAT(text, Catch::Contains("is not finite in step 2"));
    TrainingCase unclipped = job;
    unclipped.clipping = 0;
    CHECK_THAT(failure_of(unclipped, {}, ExitCode::kDiverged),
               Catch::Contains("the loss of step 2, micro step 0 is"));
}

TEST_CASE("the norm of gradients whose squares are beyond fp32 is the CPU's, and clips them") {
    TrainingCase job{"large", {2}, kAdamW, 1, 0.5};
    job.make_model = small_model_on([](int64_t micro_batch) {
        std::vector<c10::IValue> batch = testing::small_batch(micro_batch);
        batch[0] = batch[0].toTensor() * 1e3;
        batch[1] = batch[1].toTensor() * 1e17;
        return batch;
    });
    const RankOutcome here = testing::train_world(job)[0];
    const RankOutcome there = train_devices(job)[0].outcome;
    CHECK(*there.norm > 1.9e19);
    CHECK(*there.norm == Approx(*here.norm).epsilon(1e-6));
    CHECK(there.losses().back() == Approx(here.losses().back()).epsilon(1e-6));
}

// A run of six steps is saved after three by one kind of memory and resumed by the other, at
// another stage and number of ranks.
TEST_CASE("what a device saves a host resumes, and the other way round") {
    const test::TemporaryFolder folder;
    const std::unique_ptr<FileTree> tree = make_disk_tree();
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
        for (const bool device_first : {true, false}) {
            TrainingCase job{"", {2}, kAdamW, 1, 0.05};
            compute_in(dtype, job);
            job.stage = 2;
            job.steps = 3;
            job.tree = tree.get();
            job.root = folder.path() + "/checkpoints";
            const auto train = [&](bool on_device) {
                return on_device ? train_devices(job)[0].outcome : train_on_hosts(job);
            };
            const RankOutcome saved = train(device_first);
            job.resume_from = job.root + "/step-3";
            job.root = folder.path() + "/again";
            INFO(dtype_name(dtype) << ", device first " << device_first);
            // A run that resumes for no step at all has everything as it was saved.
            check_equal_on_device(train(!device_first), saved);
            job.stage = 3;
            job.steps = 6;
            const RankOutcome there = train(true);
            tree->remove_folder(job.root);
            check_equal_on_device(there, train(false));
            tree->remove_folder(job.root);
            tree->remove_folder(folder.path() + "/checkpoints");
        }
}

TEST_CASE(
    "frozen parameters stay as they are on a device, in its checkpoints and its final weights") {
    const test::TemporaryFolder folder;
    const std::unique_ptr<FileTree> tree = make_disk_tree();
    const test::Fixture fixture = test::Fixture::load("tied-frozen-unused");
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
        for (const int stage : {0, 1, 2, 3}) {
            INFO(dtype_name(dtype) << " at stage " << stage);
            TrainingCase job = testing::fixture_case("tied-frozen-unused", {2});
            compute_in(dtype, job);
            job.stage = stage;
            job.micro_step = stage >= 2;
            job.tree = tree.get();
            job.root = folder.path() + "/checkpoints";
            const RankOutcome saved = train_devices(job)[0].outcome;
            size_t still = 0, moved = 0;
            for (const ModelParameter& parameter : fixture.model.parameters()) {
                INFO(parameter.name);
                const bool is_trained = saved.updates.contains(parameter.name);
                const bool is_same =
                    at::equal(saved.parameters.at(parameter.name), parameter.tensor.detach());
                if (!is_trained) CHECK(is_same);
                still += is_trained ? 0 : 1;
                moved += is_same ? 0 : 1;
            }
            CHECK(still >= 2);
            CHECK(moved >= 2);
            job.resume_from = job.root + "/step-3";
            job.root = folder.path() + "/again";
            check_equal_on_device(train_on_hosts(job), saved);
            tree->remove_folder(job.root);
            check_equal_on_device(train_devices(job)[0].outcome, saved);
            tree->remove_folder(job.root);
            tree->remove_folder(folder.path() + "/checkpoints");
        }
}

TEST_CASE("groups that hold copies save once, and other groups resume it") {
    const test::TemporaryFolder folder;
    const std::unique_ptr<FileTree> tree = make_disk_tree();
    TrainingCase job{"groups", {4}, kAdamW, 1, 0.05};
    job.precision.compute = DType::kBF16;
    job.stage = 3;
    job.steps = 3;
    job.shard_group = 2;
    job.tree = tree.get();
    job.root = folder.path() + "/checkpoints";
    const RankOutcome saved = train_devices(job)[0].outcome;
    job.resume_from = job.root + "/step-3";
    for (const auto& [ranks, group] : {std::pair{6, 3}, {4, 1}, {3, 0}, {1, 0}}) {
        INFO(ranks << " ranks in groups of " << group);
        job.root = folder.path() + "/again";
        job.node_sizes = {ranks};
        job.shard_group = group;
        check_equal_on_device(train_devices(job)[0].outcome, saved);
        tree->remove_folder(job.root);
    }
}

TEST_CASE("a device's run that ends and resumes has the bits of one that does not") {
    const test::TemporaryFolder folder;
    const std::unique_ptr<FileTree> tree = make_disk_tree();
    for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kLion}) {
        TrainingCase job{"device", {3}};
        job.optimizer.kind = kind;
        job.optimizer.lr = 0.01;
        job.clipping = 0.05;
        job.steps = 6;
        const RankOutcome whole = train_devices(job).front().outcome;
        job.tree = tree.get();
        job.root = folder.path() + "/checkpoints";
        job.steps = 3;
        train_devices(job);
        job.resume_from = job.root + "/step-3";
        job.steps = 6;
        const RankOutcome resumed = train_devices(job).front().outcome;
        CHECK(resumed.loss == whole.loss);
        CHECK(resumed.updates == whole.updates);
        for (const auto& [name, tensor] : whole.parameters)
            CHECK(at::equal(tensor, resumed.parameters.at(name)));
        tree->remove_folder(job.root);
    }
}

}  // namespace dslaunch

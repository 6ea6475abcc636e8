// 1-bit Adam, 0/1 Adam and 1-bit LAMB over hosts that are threads, through the real trainer:
// compared with the algorithms written once more, over ZeRO stages, clipping, accumulation and 16
// bits, and saved and resumed.
#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <cmath>

#include "support/catch.h"
#include "support/temporary_folder.h"
#include "unit/zero/exchange/one_bit_reference.h"

namespace dslaunch {

using namespace config;
using namespace storage;
namespace {

using testing::equal_bits;
using testing::OneBitReference;
using testing::RankOutcome;
using testing::TrainingCase;

// Returns a config with 30 updates of warm-up, then compression.
OptimizerConfig one_bit_adam() {
    OptimizerConfig config;
    config.kind = OptimizerKind::kOneBitAdam;
    config.lr = 0.004;
    config.weight_decay = 0.05;
    config.bias_correction = false;
    config.one_bit.freeze_step = 30;
    return config;
}

// Returns a config in which all phases occur within 200 updates: intervals of the variance 1, 2, 4,
// …, then of meetings 1, 2, 4.
OptimizerConfig zero_one_adam() {
    OptimizerConfig config = one_bit_adam();
    config.kind = OptimizerKind::kZeroOneAdam;
    config.one_bit.var_freeze_step = 80;
    config.one_bit.var_update_scaler = 8;
    config.one_bit.local_step_scaler = 24;
    config.one_bit.local_step_clipper = 4;
    return config;
}

// Returns a config in which some ratios lie between the bounds, some are cut, and the factors leave
// 1.
OptimizerConfig one_bit_lamb() {
    OptimizerConfig config = one_bit_adam();
    config.kind = OptimizerKind::kOneBitLamb;
    config.lr = 0.01;
    config.max_coeff = 0.6;
    return config;
}

std::vector<OptimizerConfig> optimizers() {
    return {one_bit_adam(), zero_one_adam(), one_bit_lamb()};
}

TrainingCase job_of(const OptimizerConfig& optimizer, std::vector<int> node_sizes, int stage = 0) {
    TrainingCase job{"one bit", std::move(node_sizes), optimizer};
    job.stage = stage;
    job.shard_group = job.node_sizes.front();
    job.block_numel = 64;
    job.bucket_numel_max = 200;
    job.make_model = testing::plain_model;
    if (optimizer.needs_whole_tensors()) job.shard = ShardBy::kParameter;
    return job;
}

struct Distance {
    double loss = 0;
    double parameter = 0;
};

Distance distance(const TrainingCase& job, const RankOutcome& outcome, bool feeds_back = true) {
    at::set_num_threads(1);
    OneBitReference reference(job);
    reference.feeds_back = feeds_back;
    const std::vector<double> losses = outcome.losses();
    Distance worst;
    for (int64_t t = 1; t <= job.steps; ++t)
        worst.loss =
            std::max(worst.loss, std::abs(reference.step(t) - losses[static_cast<size_t>(t - 1)]));
    for (const auto& [name, tensor] : outcome.parameters) {
        const at::Tensor flat = tensor.contiguous();
        const float* p = flat.const_data_ptr<float>();
        const testing::Floats& expected = reference.of(name).p[0];
        for (size_t i = 0; i < expected.size(); ++i)
            worst.parameter = std::max(worst.parameter, std::abs(double{p[i]} - expected[i]));
    }
    return worst;
}

}  // namespace

TEST_CASE("200 steps of the 1-bit optimizers are those of the algorithms") {
    for (const OptimizerConfig& optimizer : optimizers())
        for (const std::vector<int>& sizes : {std::vector<int>{1, 1}, {1, 1, 1}, {2, 2}, {2, 1}})
            for (const double clipping : {0.0, 0.05}) {
                TrainingCase job = job_of(optimizer, sizes);
                job.steps = 200;
                job.clipping = clipping;
                const std::vector<RankOutcome> ranks = train_world(job);
                for (const RankOutcome& rank : ranks) CHECK(equal_bits(rank, ranks[0]));
                const Distance off = distance(job, ranks[0]);
                INFO(static_cast<int>(optimizer.kind)
                     << ", " << sizes.size() << " hosts, clipping " << clipping << ": off "
                     << off.loss << ", " << off.parameter);
                // The loss is a mean over ranks, added in another order.
                CHECK(off.loss < 1e-12);
                CHECK(off.parameter == 0);
            }
}

// The control of the test above.
TEST_CASE("without error feedback training goes another way") {
    for (const OptimizerConfig& optimizer : optimizers()) {
        TrainingCase job = job_of(optimizer, {1, 1});
        job.steps = 200;
        CHECK(distance(job, train_world(job).front(), false).parameter > 0.01);
    }
}

TEST_CASE("ZeRO stages, clipping and accumulation give the bits of stage 0") {
    for (OptimizerConfig optimizer : optimizers()) {
        optimizer.one_bit = {4, 6, 2, 4, 4};
        for (const int64_t accumulation : {1, 3})
            for (const double clipping : {0.0, 0.05}) {
                TrainingCase job = job_of(optimizer, {2, 2});
                job.accumulation = accumulation;
                job.clipping = clipping;
                job.micro_step = true;
                job.steps = 16;
                const RankOutcome plain = train_world(job).front();
                for (const int stage : {1, 2, 3}) {
                    TrainingCase sharded = job;
                    sharded.stage = stage;
                    INFO(static_cast<int>(optimizer.kind)
                         << ", stage " << stage << ", " << accumulation << " micro steps, clipping "
                         << clipping);
                    for (const RankOutcome& rank : train_world(sharded))
                        CHECK(equal_bits(rank, plain));
                }
                TrainingCase fused = job;
                fused.fused = clipping == 0 && accumulation == 1;
                CHECK(equal_bits(train_world(fused).front(), plain));
            }
    }
}

TEST_CASE("buckets and segments change no bit") {
    for (OptimizerConfig optimizer : optimizers()) {
        optimizer.one_bit = {4, 6, 2, 4, 4};
        TrainingCase job = job_of(optimizer, {1, 2, 1});
        job.steps = 16;
        const RankOutcome one = train_world(job).front();
        for (const int64_t bucket_numel : {int64_t{1}, int64_t{100}, int64_t{1} << 20})
            for (const int64_t segments : {1, 4}) {
                job.bucket_numel_max = bucket_numel;
                job.segments = segments;
                CHECK(equal_bits(train_world(job).front(), one));
            }
    }
}

TEST_CASE("16-bit parameters and loss scales go through all phases alike on every rank") {
    for (OptimizerConfig optimizer : optimizers()) {
        optimizer.one_bit = {4, 6, 2, 4, 4};
        for (const DType dtype : {DType::kBF16, DType::kF16})
            for (const int stage : {0, 1, 2, 3}) {
                TrainingCase job = job_of(optimizer, {2, 2}, stage);
                job.precision.compute = dtype;
                job.precision.skip_nonfinite_steps = true;
                job.micro_step = true;
                job.steps = 20;
                INFO(static_cast<int>(optimizer.kind)
                     << ", " << dtype_name(dtype) << ", stage " << stage);
                const std::vector<RankOutcome> ranks = train_world(job);
                for (const RankOutcome& rank : ranks) CHECK(equal_bits(rank, ranks[0]));
                CHECK(std::isfinite(ranks[0].losses().back()));
                TrainingCase plain = job;
                plain.stage = 0;
                CHECK(equal_bits(train_world(plain).front(), ranks[0]));
            }
    }
}

TEST_CASE("a step whose gradients are not finite is skipped on all hosts in every phase") {
    for (OptimizerConfig optimizer : optimizers()) {
        optimizer.one_bit = {4, 6, 2, 4, 4};
        TrainingCase job = job_of(optimizer, {1, 1});
        job.precision.compute = DType::kF16;
        job.precision.skip_nonfinite_steps = true;
        // The scale is so large that steps of all phases overflow. It doubles after each step that
        // does not.
        job.precision.loss_scale.dynamic = true;
        job.precision.loss_scale.initial = 0x1p24;
        job.precision.loss_scale.window = 1;
        job.steps = 30;
        const std::vector<RankOutcome> ranks = train_world(job);
        for (const RankOutcome& rank : ranks) CHECK(equal_bits(rank, ranks[0]));
        int skipped = 0;
        for (const auto& overflow : ranks[0].overflows) skipped += overflow ? 1 : 0;
        CHECK(skipped > 4);
        CHECK(skipped < 25);
        CHECK(ranks[0].updates.at("w1") == 30 - skipped);
    }
}

TEST_CASE("one host compresses nothing: its variance freezes where others compress") {
    OptimizerConfig adam = one_bit_adam();
    TrainingCase job = job_of(adam, {2});
    job.steps = 30;
    const RankOutcome frozen = train_world(job).front();
    adam.kind = OptimizerKind::kAdamW;
    job.optimizer = adam;
    CHECK(equal_bits(train_world(job).front(), frozen));
    // From here on they differ.
    job.steps = 40;
    const RankOutcome moving = train_world(job).front();
    job.optimizer = one_bit_adam();
    const RankOutcome late = train_world(job).front();
    CHECK(!equal_bits(late, moving));
    CHECK(late.losses().back() < late.losses().front());
    job.optimizer = zero_one_adam();
    job.steps = 120;
    const RankOutcome zero_one = train_world(job).front();
    CHECK(zero_one.losses().back() < zero_one.losses().front());
    for (const int stage : {1, 2, 3}) {
        job.stage = stage;
        job.shard_group = 0;
        job.micro_step = true;
        CHECK(equal_bits(train_world(job).front(), zero_one));
    }
}

TEST_CASE("one host goes on with 1-bit LAMB as LAMB, then with its variance frozen") {
    OptimizerConfig lamb = one_bit_lamb();
    TrainingCase job = job_of(lamb, {2});
    job.steps = 30;
    const RankOutcome warm = train_world(job).front();
    lamb.kind = OptimizerKind::kLamb;
    job.optimizer = lamb;
    CHECK(equal_bits(train_world(job).front(), warm));
    job.steps = 60;
    const RankOutcome moving = train_world(job).front();
    job.optimizer = one_bit_lamb();
    const RankOutcome frozen = train_world(job).front();
    CHECK(!equal_bits(frozen, moving));
    CHECK(frozen.losses().back() < frozen.losses().front());
    for (const int stage : {1, 2, 3}) {
        job.stage = stage;
        job.shard_group = 0;
        job.micro_step = true;
        CHECK(equal_bits(train_world(job).front(), frozen));
    }
}

// LAMB's checkpoint has no mean of ratios. If a run compresses from its first update on, it takes
// the first update's ratio.
TEST_CASE("1-bit LAMB goes on from LAMB, also where it compresses at once") {
    const test::TemporaryFolder folder("/dev/shm");
    const std::unique_ptr<FileTree> tree = make_disk_tree();
    OptimizerConfig lamb = one_bit_lamb();
    lamb.kind = OptimizerKind::kLamb;
    TrainingCase job = job_of(lamb, {1, 1});
    job.tree = tree.get();
    job.root = folder.path() + "/lamb";
    job.steps = 20;
    const RankOutcome before = train_world(job).front();
    job.resume_from = job.root + "/step-20";
    job.root = folder.path() + "/one-bit";
    job.optimizer = one_bit_lamb();
    job.optimizer.one_bit.freeze_step = 5;
    job.steps = 60;
    const std::vector<RankOutcome> ranks = train_world(job);
    for (const RankOutcome& rank : ranks) CHECK(equal_bits(rank, ranks[0]));
    CHECK(ranks[0].losses().back() < before.losses().front());
    CHECK(ranks[0].updates.at("w1") == 60);
}

TEST_CASE("a job resumed in any phase has the bits of one that was never interrupted") {
    for (OptimizerConfig optimizer : optimizers()) {
        optimizer.one_bit = {4, 6, 2, 6, 4};
        for (const int stage : {0, 2})
            for (const int64_t stop : {3, 5, 7, 8, 9, 14, 17}) {
                const test::TemporaryFolder folder("/dev/shm");
                const std::unique_ptr<FileTree> tree = make_disk_tree();
                TrainingCase job = job_of(optimizer, {2, 2}, stage);
                job.micro_step = true;
                job.tree = tree.get();
                job.root = folder.path() + "/whole";
                job.save.interval = stop;
                job.steps = 24;
                const RankOutcome whole = train_world(job).front();
                job.root = folder.path() + "/parts";
                job.steps = stop;
                train_world(job);
                job.steps = 24;
                job.resume_from = fmt::format("{}/step-{}", job.root, stop);
                INFO(static_cast<int>(optimizer.kind)
                     << ", stage " << stage << ", stopped after " << stop);
                for (const RankOutcome& rank : train_world(job)) CHECK(equal_bits(rank, whole));
            }
    }
}

TEST_CASE("a job goes on over other numbers of hosts, and no error is lost or made") {
    for (OptimizerConfig optimizer : optimizers()) {
        optimizer.one_bit = {4, 6, 2, 6, 4};
        const test::TemporaryFolder folder("/dev/shm");
        const std::unique_ptr<FileTree> tree = make_disk_tree();
        TrainingCase job = job_of(optimizer, {1, 1, 1});
        job.tree = tree.get();
        job.root = folder.path() + "/three";
        job.steps = 12;
        const RankOutcome before = train_world(job).front();
        const std::string from = job.root + "/step-12";
        // Errors by tensor: the averages' errors, and the mean of the hosts' errors.
        const auto errors_of = [&](const std::string& step_folder) {
            const CheckpointReader reader(*tree, step_folder);
            const Checkpoint& checkpoint = reader.checkpoint();
            std::map<std::string, std::vector<double>> errors;
            for (size_t t = 0; t < checkpoint.tensors.size(); ++t) {
                if (checkpoint.tensors[t].kind != TensorKind::kTrained) continue;
                const auto states = static_cast<int>(checkpoint.states.size());
                const auto server =
                    static_cast<int>(std::ranges::find(checkpoint.states, "server_error") -
                                     checkpoint.states.begin());
                const int hosts = states - server - 1;
                for (int k = server; k < states; ++k) {
                    const bool of_server = k == server;
                    std::vector<double>& into =
                        errors[checkpoint.tensors[t].name + (of_server ? ".server" : ".worker")];
                    into.resize(static_cast<size_t>(checkpoint.tensors[t].numel()));
                    reader.for_each(static_cast<int>(t), k, {0, checkpoint.tensors[t].numel()},
                                    [&](const Range& part, std::span<const std::byte> bytes) {
                                        const auto* values =
                                            reinterpret_cast<const float*>(bytes.data());
                                        for (int64_t i = 0; i < part.numel; ++i)
                                            into[static_cast<size_t>(part.begin + i)] +=
                                                double{values[i]} / (of_server ? 1 : hosts);
                                    });
                }
            }
            return errors;
        };
        const auto three = errors_of(from);
        double size = 0;
        for (const auto& [name, values] : three)
            for (const double value : values) size += std::abs(value);
        CHECK(size > 1e-6);
        for (const std::vector<int>& sizes : {std::vector<int>{1, 1}, {2, 2}, {1, 1, 1, 1, 1}}) {
            TrainingCase other = job_of(optimizer, sizes);
            other.tree = tree.get();
            other.root = folder.path() + fmt::format("/{}x{}", sizes.size(), sizes.front());
            other.resume_from = from;
            other.steps = 12;
            other.save_untrained = true;
            train_world(other);
            const auto theirs = errors_of(other.root + "/step-12");
            CHECK(theirs.size() == three.size());
            double off = 0;
            for (const auto& [name, values] : three)
                for (size_t i = 0; i < values.size(); ++i)
                    off = std::max(off, std::abs(values[i] - theirs.at(name)[i]));
            INFO(static_cast<int>(optimizer.kind) << " on " << sizes.size() << " hosts");
            CHECK(off < 1e-6);
            other.save_untrained = false;
            other.steps = 40;
            const std::vector<RankOutcome> ranks = train_world(other);
            for (const RankOutcome& rank : ranks) CHECK(equal_bits(rank, ranks[0]));
            CHECK(ranks[0].losses().back() < before.losses().front());
        }
        // A single host continues without errors, and a run of AdamW takes the moments.
        TrainingCase alone = job_of(optimizer, {1});
        alone.tree = tree.get();
        alone.root = folder.path() + "/alone";
        alone.resume_from = from;
        alone.steps = 20;
        CHECK(train_world(alone).front().losses().size() == 8);
        const bool lamb = optimizer.kind == OptimizerKind::kOneBitLamb;
        alone.optimizer.kind = lamb ? OptimizerKind::kLamb : OptimizerKind::kAdamW;
        alone.root = folder.path() + "/adamw";
        CHECK(train_world(alone).front().losses().size() == 8);
    }
}

// A parameter that has never had a gradient would be moved by the noise of its block's scale,
// divided by eps.
TEST_CASE("elements without a gradient in the warm-up do not move while hosts compress") {
    for (OptimizerConfig optimizer : optimizers()) {
        optimizer.weight_decay = 0;
        optimizer.one_bit = {4, 6, 2, 4, 4};
        TrainingCase job = job_of(optimizer, {1, 1});
        job.steps = 20;
        // The third input of each sample is always 0, so its row of w1 has no gradient.
        job.make_model = [] {
            testing::TrainedModel model = testing::plain_model();
            model.batch = [](const graph::SegmentedModel&, int64_t micro_batch) {
                std::vector<c10::IValue> batch = testing::small_batch(micro_batch);
                batch[0].toTensor().select(1, 2).zero_();
                return batch;
            };
            return model;
        };
        const RankOutcome outcome = train_world(job).front();
        at::Tensor before;
        for (const auto& [name, tensor] : testing::plain_parameters())
            if (name == "w1") before = tensor;
        CHECK(at::equal(outcome.parameters.at("w1").select(0, 2), before.select(0, 2)));
        CHECK(!at::equal(outcome.parameters.at("w1").select(0, 1), before.select(0, 1)));
    }
}

}  // namespace dslaunch

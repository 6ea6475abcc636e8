// Optimizers that update whole tensors: LAMB, Adafactor and Muon, compared with references in fp64,
// at every stage. Also states that are not moments, saved and resumed.
#include "zero/states/tensor_optimizer.h"

#include "support/catch.h"
#include "support/temporary_folder.h"
#include "unit/zero/training_reference.h"
#include "unit/zero/training_world.h"

using namespace dslaunch;
using namespace dslaunch::testing;
using config::NewtonSchulz;

namespace {

const OptimizerConfig kLamb = [] {
    OptimizerConfig config = optimizer(OptimizerKind::kLamb, 0.1);
    config.min_coeff = 0.02;
    config.max_coeff = 2;
    return config;
}();

const OptimizerConfig kMuon = [] {
    OptimizerConfig config = optimizer(OptimizerKind::kMuon, 0.1);
    config.momentum = 0.9;
    config.newton_schulz = NewtonSchulz::kStandard;
    config.rest_lr = 0.005;
    return config;
}();

const OptimizerConfig kAdafactor = [] {
    OptimizerConfig config = optimizer(OptimizerKind::kAdafactor, 0.1);
    config.lr = 0.05;
    return config;
}();

// Adafactor with a first moment, and with rates that no tensor scales.
const OptimizerConfig kAdafactorMoment = [] {
    OptimizerConfig config = kAdafactor;
    config.lr = 0.01;
    config.beta1 = 0.8;
    config.adafactor.first_moment = true;
    config.adafactor.scale_parameter = false;
    config.adafactor.clip_threshold = 0.5;
    return config;
}();

// Returns rules: matrices follow Muon, vectors follow AdamW at its own rate.
zero::UpdateRules muon_rules(const OptimizerConfig& muon) {
    OptimizerConfig rest = muon;
    rest.kind = OptimizerKind::kAdamW;
    rest.lr = muon.rest_lr;
    zero::UpdateRules rules;
    rules.rules = {{muon, 1}, {rest, rest.lr / muon.lr}};
    for (const auto& [name, tensor] : initial_parameters())
        rules.of_parameter.push_back(tensor.dim() >= 2 ? 0 : 1);
    return rules;
}

void check_every_stage(TrainingCase job) {
    const RankOutcome reference = train_reference(job);
    std::optional<RankOutcome> first;
    for (int stage = 0; stage <= 3; ++stage)
        for (const ShardBy shard : {ShardBy::kParameter, ShardBy::kGroup, ShardBy::kLayer}) {
            job.stage = stage;
            job.shard = shard;
            CAPTURE(job.name, job.node_sizes, stage, shard_by_name(shard));
            for (const RankOutcome& rank : train_world(job)) {
                check_near(rank, reference);
                if (!first) first = rank;
                CHECK(equal_bits(rank, *first));
            }
            if (stage == 0) break;
        }
}

}  // namespace

TEST_CASE("LAMB agrees with its paper at every stage, with the same bits") {
    for (const std::vector<int>& sizes :
         {std::vector<int>{1}, {2}, {3}, {5}, {8}, {2, 1}, {1, 1, 1}}) {
        check_every_stage({"LAMB", sizes, kLamb});
        check_every_stage({"LAMB, clipped, accumulated", sizes, kLamb, 2, 0.05, true});
    }
    OptimizerConfig plain = kLamb;
    plain.bias_correction = false;
    plain.weight_decay = 0;
    check_every_stage({"LAMB without correction and decay", {2}, plain});
    OptimizerConfig inside = kLamb;
    inside.eps = 1e-3;  // the roots of the second moments are about as large
    inside.eps_inside_sqrt = true;
    check_every_stage({"LAMB with eps inside the root", {2, 1}, inside});
}

TEST_CASE("Muon for matrices beside AdamW for vectors, at every stage, with the same bits") {
    for (const std::vector<int>& sizes :
         {std::vector<int>{1}, {2}, {3}, {5}, {8}, {2, 1}, {1, 1, 1}}) {
        TrainingCase job{"Muon", sizes, kMuon};
        job.rules = muon_rules(kMuon);
        check_every_stage(job);
        job.accumulation = 2;
        job.clipping = 0.05;
        job.micro_step = true;
        job.name = "Muon, clipped, accumulated";
        check_every_stage(job);
    }
}

TEST_CASE("Adafactor is that of its paper at every stage, with the same bits") {
    for (const OptimizerConfig& config : {kAdafactor, kAdafactorMoment})
        for (const std::vector<int>& sizes :
             {std::vector<int>{1}, {2}, {3}, {5}, {8}, {2, 1}, {1, 1, 1}}) {
            check_every_stage({"Adafactor", sizes, config});
            check_every_stage({"Adafactor, clipped, accumulated", sizes, config, 2, 0.05, true});
        }
}

TEST_CASE("Adafactor keeps a row and a column of factors, and no second moment") {
    TrainingCase job{"memory", {2}, kAdafactor};
    job.stage = 1;
    job.shard = ShardBy::kParameter;
    int64_t expected = 0;  // w1, w2, w3: rows and columns; b1, extra, gain: as they are
    for (const auto& [name, tensor] : initial_parameters())
        expected += tensor.dim() < 2 ? tensor.numel() : tensor.size(0) + tensor.size(1);
    const std::vector<RankOutcome> ranks = train_world(job);
    CHECK(ranks[0].moments.value + ranks[1].moments.value == expected * 4);
    TrainingCase adam{"memory", {2}, kAdamW};
    adam.stage = 1;
    CHECK(train_world(adam)[0].moments.value > expected * 4);
}

TEST_CASE("factors are saved, and resumed at other stages and by other ranks") {
    const std::unique_ptr<FileTree> tree = make_disk_tree();
    for (const OptimizerConfig& config : {kAdafactor, kAdafactorMoment})
        for (const int stage : {0, 1, 3}) {
            const test::TemporaryFolder folder("/dev/shm");
            TrainingCase job{"saved", {2, 2}, config};
            job.stage = stage;
            job.shard = ShardBy::kParameter;
            job.micro_step = true;
            job.tree = tree.get();
            job.root = folder.path() + "/whole";
            job.save.interval = 3;
            const RankOutcome whole = train_world(job).front();
            job.root = folder.path() + "/parts";
            job.resume_from = folder.path() + "/whole/step-3";
            for (const int other : {0, 1, 2, 3}) {
                job.stage = other;
                CAPTURE(stage, other, config.adafactor.first_moment);
                for (const RankOutcome& rank : train_world(job)) CHECK(equal_bits(rank, whole));
            }
            // With other numbers of ranks, sums are rounded differently.
            TrainingCase three{"saved", {4}, config};
            three.tree = tree.get();
            three.root = folder.path() + "/four";
            three.resume_from = job.resume_from;
            three.stage = 2;
            three.shard = ShardBy::kParameter;
            three.micro_step = true;
            check_near(train_world(three).front(), whole);
            const CheckpointReader reader(*tree, job.resume_from);
            const Checkpoint& checkpoint = reader.checkpoint();
            CHECK(checkpoint.format == 2);
            const CheckpointTensor& w1 = checkpoint.tensors[checkpoint.find("w1")];
            const std::vector<int64_t> sizes = {7, 20, 0};
            const size_t moments = config.adafactor.first_moment ? 1 : 0;
            CHECK(w1.state_numel.size() == moments + 3);
            CHECK(std::vector<int64_t>(w1.state_numel.end() - 3, w1.state_numel.end()) == sizes);
            // Another optimizer's states do not count for it.
            TrainingCase adam = job;
            adam.optimizer = kAdamW;
            CHECK_THROWS_AS(train_world(adam), Error);
        }
}

TEST_CASE("an orthogonal matrix has singular values about 1, by either method") {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{12, 40}, {40, 12}, {16, 16}}) {
        at::manual_seed(7);
        const at::Tensor x = at::randn({rows, columns}, at::kDouble);
        const at::Tensor standard = zero::orthogonal(x, NewtonSchulz::kStandard);
        const at::Tensor values = std::get<1>(at::linalg_svd(standard));
        CHECK(values.min().item<double>() > 0.6);
        CHECK(values.max().item<double>() < 1.3);
        CHECK(at::allclose(zero::orthogonal(x, NewtonSchulz::kGram), standard, 1e-9, 1e-9));
        // The directions are X's: u of standard is u of x.
        const auto [u, s, vh] = at::linalg_svd(x, /*full_matrices=*/false);
        const at::Tensor inner = u.t().matmul(standard).matmul(vh.t());
        const at::Tensor off = inner - inner.diag().diag();
        CHECK(off.abs().max().item<double>() < 1e-9);
    }
    at::manual_seed(8);
    const at::Tensor experts = at::randn({3, 8, 20}, at::kDouble);
    for (const NewtonSchulz method : {NewtonSchulz::kStandard, NewtonSchulz::kGram})
        CHECK(at::allclose(zero::orthogonal(experts, method)[1],
                           zero::orthogonal(experts[1], method), 1e-9, 1e-9));
}

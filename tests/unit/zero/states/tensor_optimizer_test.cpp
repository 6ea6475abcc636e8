// Optimizers that update whole tensors: LAMB and Muon beside references in fp64, at every stage.
#include "zero/states/tensor_optimizer.h"

#include "support/catch.h"
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

// Matrices follow Muon, vectors AdamW at its own rate.
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

TEST_CASE("an orthogonal matrix has singular values about 1, by either method") {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{12, 40}, {40, 12}, {16, 16}}) {
        at::manual_seed(7);
        const at::Tensor x = at::randn({rows, columns}, at::kDouble);
        const at::Tensor standard = zero::orthogonal(x, NewtonSchulz::kStandard);
        const at::Tensor values = std::get<1>(at::linalg_svd(standard));
        CHECK(values.min().item<double>() > 0.6);
        CHECK(values.max().item<double>() < 1.3);
        CHECK(at::allclose(zero::orthogonal(x, NewtonSchulz::kGram), standard, 1e-9, 1e-9));
        // The directions are those of X: u of standard is u of x.
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

// Stage 0, compared with torch::optim on the mean gradient, over world sizes, hosts, accumulation,
// clipping and optimizers; stages 1 to 3, compared bit by bit with stage 0.
#include "zero/zero_state.h"

#include <ATen/ops/equal.h>

#include <cstdlib>

#include "optimizers.h"
#include "support/catch.h"
#include "training_reference.h"

namespace dslaunch {

using namespace config;
using namespace graph;
namespace {

using testing::equal_bits;
using testing::kAdagrad;
using testing::kAdamL2;
using testing::kAdamW;
using testing::kAmsgrad;
using testing::kLion;
using testing::kSgd;
using testing::momentum_sgd;
using testing::RankOutcome;
using testing::TrainingCase;

void check_against_reference(const TrainingCase& job) {
    INFO(job.name << " on " << job.world_size() << " ranks");
    const std::vector<RankOutcome> ranks = train_world(job);
    for (size_t rank = 1; rank < ranks.size(); ++rank) CHECK(equal_bits(ranks[rank], ranks[0]));
    check_near(ranks[0], train_reference(job));
}

}  // namespace

TEST_CASE("after some steps every rank has the parameters that torch::optim comes to") {
    const std::vector<int> hosts[] = {{1}, {2}, {3}, {5}, {8}, {1, 1}, {2, 1}, {1, 3}, {2, 3, 1}};
    for (const std::vector<int>& sizes : hosts) {
        check_against_reference({"AdamW", sizes, kAdamW});
        check_against_reference({"Adam with L2 decay, accumulated", sizes, kAdamL2, 2});
        check_against_reference({"SGD, clipped", sizes, kSgd, 1, 0.05});
    }
}

TEST_CASE("each optimizer, clipping and way of reduction agrees with torch::optim") {
    test::EveryNth cases(1);
    for (const std::vector<int>& sizes : {std::vector<int>{1}, {2}, {2, 1}})
        testing::for_each_optimizer(sizes, 3, {0.0, 0.05, 100.0}, check_against_reference, cases);
}

TEST_CASE("maximize has the bits of descending the loss with another sign") {
    for (OptimizerConfig config : {kAdamW, kAdamL2, kAdagrad, kSgd, momentum_sgd(0.9, 0.3, false)})
        for (const auto& [stage, lags] : {std::pair{0, false}, {2, false}, {2, true}}) {
            if (lags && config.kind != OptimizerKind::kAdamW) continue;
            config.maximize = false;
            TrainingCase job{"climbs", {2}, config};
            if (lags) job.lagging = {true, 0.25, 2, 4, false, 1};
            job.stage = stage;
            job.micro_step = true;
            job.make_model = [] {
                std::string text = testing::kSmallText;
                text.replace(text.rfind("return ("), 8, "return -(");
                testing::TrainedModel model = testing::small_model();
                model.model = test::script_model(text, testing::initial_parameters());
                return model;
            };
            const RankOutcome down = train_world(job).front();
            job.make_model = testing::small_model;
            const RankOutcome other_way = train_world(job).front();
            job.optimizer.maximize = true;
            const RankOutcome up = train_world(job).front();
            CAPTURE(static_cast<int>(config.kind), stage);
            for (const auto& [name, tensor] : up.parameters)
                CHECK(at::equal(tensor, down.parameters.at(name)));
            CHECK_FALSE(equal_bits(up, other_way));
            CHECK(up.loss == -down.loss);
        }
}

TEST_CASE("the fused update has the bits of the plain one") {
    for (const std::vector<int>& sizes : {std::vector<int>{1}, {2}, {3}, {8}}) {
        for (const OptimizerConfig& config :
             {kAdamW, kAdamL2, momentum_sgd(0.9, 0.3, false), kAdagrad, kLion, kAmsgrad}) {
            TrainingCase job{"fused", sizes, config, 2};
            const RankOutcome plain = train_world(job).front();
            job.fused = true;
            check_against_reference(job);
            for (const RankOutcome& rank : train_world(job)) CHECK(equal_bits(rank, plain));
        }
    }
}

TEST_CASE("buckets, segments and recompute change no bit") {
    for (const std::vector<int>& sizes : {std::vector<int>{1}, {3}, {2, 1}}) {
        for (const bool micro_step : {false, true}) {
            for (const double clipping : {0.0, 0.05}) {
                TrainingCase job{"buckets", sizes, kAdamW, 2, clipping, micro_step};
                const RankOutcome one = train_world(job).front();
                for (const int64_t bucket_numel :
                     {int64_t{1}, int64_t{32}, int64_t{200}, int64_t{400}}) {
                    for (const int64_t segments : {1, 4, 100}) {
                        job.bucket_numel_max = bucket_numel;
                        job.segments = segments;
                        job.recompute_groups = segments == 100 ? 2 : 0;
                        INFO("buckets of " << bucket_numel << ", " << segments
                                           << " segments, micro_step " << micro_step
                                           << ", clipping " << clipping);
                        CHECK(equal_bits(train_world(job).front(), one));
                    }
                }
            }
        }
    }
}

TEST_CASE(
    "accumulated micro steps reduced at once or one by one differ only by the order of sums") {
    TrainingCase job{"once", {3}, kAdamW, 4};
    const RankOutcome once = train_world(job).front();
    job.micro_step = true;
    const RankOutcome each = train_world(job).front();
    for (const auto& [name, tensor] : once.parameters)
        CHECK((tensor - each.parameters.at(name)).abs().max().item<double>() < testing::kTolerance);
}

TEST_CASE("a parameter that no rank used in a step is left alone in that step") {
    // sin(1 + 31 m) > 0.5 for m = 0 and 1, not for 2 and 3: with one rank the first two steps use
    // `extra`.
    TrainingCase job{"unused", {1}, kAdamW};
    job.steps = 4;
    const RankOutcome rank = train_world(job).front();
    CHECK(rank.updates.at("extra") == 2);
    CHECK(rank.updates.at("w1") == 4);
    job.steps = 2;
    // In a skipped step, weight decay and momentum would move the parameter.
    CHECK(at::equal(train_world(job).front().parameters.at("extra"), rank.parameters.at("extra")));
}

TEST_CASE("stages 1, 2 and 3 have the bits of stage 0") {
    const std::vector<int> hosts[] = {{1},    {2},    {3},       {4},    {5},      {8},
                                      {1, 1}, {2, 1}, {1, 1, 1}, {3, 2}, {1, 2, 1}};
    for (const std::vector<int>& sizes : hosts) {
        for (const int64_t accumulation : {1, 3}) {
            for (const double clipping : {0.0, 0.05}) {
                for (const int64_t groups : {0, 2}) {
                    TrainingCase job{"stages", sizes, kAdamW, accumulation, clipping};
                    job.micro_step = true;
                    job.recompute_groups = groups;
                    job.steps = 4;
                    job.bucket_numel_max = 200;
                    const RankOutcome replicated = train_world(job).front();
                    for (const int stage : {1, 2, 3}) {
                        job.stage = stage;
                        INFO("stage " << stage << " on " << job.world_size() << " ranks of "
                                      << sizes.size() << " hosts, accumulation " << accumulation
                                      << ", clipping " << clipping << ", groups " << groups);
                        for (const RankOutcome& rank : train_world(job)) {
                            CHECK(rank.loss == replicated.loss);
                            CHECK(rank.norm == replicated.norm);
                            for (const auto& [name, tensor] : rank.parameters) {
                                INFO(name);
                                CHECK(at::equal(tensor, replicated.parameters.at(name)));
                            }
                        }
                    }
                }
            }
        }
    }
}

TEST_CASE("every optimizer has at stages 1, 2 and 3 the bits of stage 0, in fp32 and bf16") {
    for (const std::vector<int>& sizes : {std::vector<int>{2}, {2, 1}})
        for (const OptimizerConfig& config :
             {kAdamL2, momentum_sgd(0.9, 0.3, false), kAdagrad, kLion, kAmsgrad})
            for (const DType dtype : {DType::kF32, DType::kBF16}) {
                TrainingCase job{"optimizers", sizes, config, 1, 0.05};
                job.micro_step = true;
                job.precision.compute = dtype;
                job.bucket_numel_max = 200;
                job.steps = 4;
                const RankOutcome replicated = train_world(job).front();
                for (job.stage = 1; job.stage <= 3; ++job.stage) {
                    INFO("optimizer " << static_cast<int>(config.kind) << ", stage " << job.stage
                                      << " on " << job.world_size() << " ranks");
                    for (const RankOutcome& rank : train_world(job))
                        CHECK(equal_bits(rank, replicated));
                }
            }
}

TEST_CASE("in bf16 and fp16 stages 1, 2 and 3 have the bits of stage 0, their masters fp32") {
    const std::vector<int> hosts[] = {{1}, {2}, {3}, {5}, {1, 1}, {2, 1}, {1, 2, 1}};
    for (const DType dtype : {DType::kBF16, DType::kF16})
        for (const std::vector<int>& sizes : hosts)
            for (const double clipping : {0.0, 0.05}) {
                TrainingCase job{"half", sizes, kAdamW, sizes.size() > 1 ? 3 : 1, clipping};
                job.micro_step = true;
                job.precision.compute = dtype;
                job.recompute_groups = clipping > 0 ? 2 : 0;
                job.bucket_numel_max = 200;
                job.steps = 4;
                const RankOutcome replicated = train_world(job).front();
                for (const auto& [name, tensor] : replicated.parameters) {
                    INFO(name);
                    CHECK(tensor.scalar_type() == at::kFloat);
                    // A master copy holds more than its 16-bit copy does.
                    const at::Tensor rounded = tensor.to(scalar_type_of(dtype)).to(at::kFloat);
                    CHECK((tensor.numel() == 1 || !at::equal(tensor, rounded)));
                }
                for (job.stage = 1; job.stage <= 3; ++job.stage) {
                    INFO("stage " << job.stage << " on " << job.world_size() << " ranks of "
                                  << sizes.size() << " hosts, clipping " << clipping);
                    for (const RankOutcome& rank : train_world(job))
                        CHECK(equal_bits(rank, replicated));
                }
            }
}

TEST_CASE("training in half precision stays near the fp64 reference") {
    // Rounding a value to 8 (bf16) or 11 (fp16) bits has an error of 2^-9 or 2^-12 of it. Losses of
    // about 1 through three products have a few times that error.
    const auto check = [](DType dtype, double tolerance) {
        TrainingCase job{"half", {2, 1}, kSgd};
        const RankOutcome reference = train_reference(job);
        job.precision.compute = dtype;
        for (job.stage = 0; job.stage <= 3; ++job.stage) {
            job.micro_step = job.stage >= 2;
            const RankOutcome rank = train_world(job).front();
            CHECK(std::abs(rank.loss - reference.loss) < tolerance);
            CHECK(std::abs(rank.loss - reference.loss) > 1e-8);
        }
    };
    check(DType::kBF16, 0.02);
    check(DType::kF16, 0.0025);
}

TEST_CASE("training twice gives equal bits") {
    const TrainingCase job{"twice", {2, 2, 1}, kAdamW, 2, 0.05};
    CHECK(equal_bits(train_world(job).front(), train_world(job).front()));
}

}  // namespace dslaunch

// fp16 training through the trainer: all ranks skip overflows alike, and the scale falls. The run
// equals one that began with the lower scale, and at the minimum it ends with advice.
#include <ATen/ops/equal.h>

#include <algorithm>
#include <cmath>

#include "support/catch.h"
#include "training_world.h"

namespace dslaunch {

using namespace graph;
namespace {

using testing::RankOutcome;
using testing::TrainingCase;

// Two separate losses, so that a target too far away spoils the gradient of only one parameter.
const char* const kTwoLosses =
    "def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:\n"
    "    a = torch.matmul(x, self.first) - y\n"
    "    b = torch.matmul(x, self.second) - z\n"
    "    return (a * a).mean() + (b * b).mean()\n";

using IsFar = std::function<bool(int64_t micro_batch)>;

// Returns a model with both losses. In micro batches that are FAR, the second loss has targets 64
// times as far away. The batches begin with number FIRST.
std::function<testing::TrainedModel()> two_losses(const IsFar& far, int64_t first = 0) {
    return [far, first] {
        testing::TrainedModel trained{
            test::script_model(kTwoLosses, {{"first", testing::wave({7, 4}, 0.1) * 0.1},
                                            {"second", testing::wave({7, 5}, 0.2) * 0.1}}),
            {},
            {}};
        trained.batch = [far, first](const SegmentedModel&,
                                     int64_t micro_batch) -> std::vector<c10::IValue> {
            const int64_t m = micro_batch + first;
            const auto start = static_cast<double>(m);
            const double distance = far(m) ? 64 : 1;
            return {testing::wave({2, 7}, 31.0 * start), testing::wave({2, 4}, 17.0 * start),
                    testing::wave({2, 5}, 13.0 * start) * distance};
        };
        return trained;
    };
}

const IsFar kNone = [](int64_t) { return false; };
const IsFar kAll = [](int64_t) { return true; };

// An output's gradient is 2 * difference / numel * scale, with 8 and 10 outputs and differences of
// at most 2. A parameter's gradient is the sum of two of these times x, which is at most 1. So at
// 2^15 no gradient is above 2^15, while far targets give 2 * 60 / 10 * 2^15, six times the largest
// fp16.
constexpr double kLowScale = 1 << 14;

TrainingCase fp16_case(std::vector<int> sizes, double scale) {
    TrainingCase job{"fp16", std::move(sizes)};
    job.optimizer.lr = 0.01;
    job.micro_step = true;
    job.segments = 1;
    job.precision.compute = DType::kF16;
    job.precision.skip_nonfinite_steps = true;
    job.precision.loss_scale = {
        .dynamic = true, .initial = scale, .minimum = 1, .window = 1000, .hysteresis = 1};
    job.make_model = two_losses(kNone);
    return job;
}

int64_t skipped_steps(const RankOutcome& rank) {
    return std::count_if(rank.overflows.begin(), rank.overflows.end(),
                         [](const auto& overflow) { return overflow.has_value(); });
}

void check_equal_training(const RankOutcome& a, const RankOutcome& b) {
    CHECK(a.updates == b.updates);
    for (const auto& [name, tensor] : a.parameters) {
        INFO(name);
        CHECK(at::equal(tensor, b.parameters.at(name)));
    }
}

const std::vector<int> kWorlds[] = {{2}, {3}, {1, 1}, {2, 1}};

// Trains without the first step's batches.
RankOutcome train_without_first_step(TrainingCase job, double scale) {
    job.precision.loss_scale.initial = scale;
    --job.steps;
    job.make_model = two_losses(kNone, job.world_size());
    return testing::train_world(job).front();
}

}  // namespace

TEST_CASE("an overflow of one rank is skipped by all and brought home to rank and parameter") {
    for (const std::vector<int>& sizes : kWorlds)
        for (const int stage : {0, 1, 2, 3}) {
            TrainingCase job = fp16_case(sizes, 2 * kLowScale);
            job.stage = stage;
            job.make_model = two_losses([](int64_t micro_batch) { return micro_batch == 1; });
            INFO("stage " << stage << " on " << job.world_size() << " ranks of " << sizes.size()
                          << " hosts");
            const std::vector<RankOutcome> ranks = testing::train_world(job);
            for (const RankOutcome& rank : ranks) {
                CHECK(skipped_steps(rank) == 1);
                REQUIRE(rank.overflows[0].has_value());
                CHECK(rank.overflows[0]->parameter == 1);
                CHECK(rank.overflows[0]->rank == 1);
                check_equal_training(rank, ranks[0]);
            }
            const std::vector<nlohmann::json>& metrics = ranks[0].metrics;
            CHECK(metrics[0].at("skipped") == true);
            CHECK(metrics[0].at("loss_scale") == 2 * kLowScale);
            CHECK_FALSE(metrics[1].contains("skipped"));
            CHECK(metrics[1].at("loss_scale") == kLowScale);
            check_equal_training(train_without_first_step(job, kLowScale), ranks[0]);
        }
}

TEST_CASE("a scale that begins too high falls until the gradients fit, and no step before moves") {
    for (const std::vector<int>& sizes : {std::vector<int>{1}, {3}, {2, 1}})
        for (const int stage : {0, 1, 2, 3}) {
            TrainingCase job = fp16_case(sizes, 1 << 20);
            job.stage = stage;
            job.steps = 9;
            job.make_model = [] {
                // Every step has the same batch, so a scale that fits once fits always.
                testing::TrainedModel trained = two_losses(kNone)();
                trained.batch = [batch = trained.batch](const SegmentedModel& model, int64_t) {
                    return batch(model, 0);
                };
                return trained;
            };
            INFO("stage " << stage << " on " << job.world_size() << " ranks of " << sizes.size()
                          << " hosts");
            const RankOutcome rank = testing::train_world(job).front();
            const int64_t skipped = skipped_steps(rank);
            // 2 * 1 / 10 * 2^20 is above 65504, and at 2^15 nothing is.
            CHECK(skipped >= 1);
            CHECK(skipped <= 5);
            for (int64_t step = 0; step < job.steps; ++step) {
                const nlohmann::json& line = rank.metrics[step];
                CHECK(line.contains("skipped") == (step < skipped));
                CHECK(line.at("loss_scale") ==
                      std::ldexp(1.0, static_cast<int>(20 - std::min(step, skipped))));
            }
            CHECK(rank.updates.at("first") == job.steps - skipped);
            TrainingCase lower = job;
            lower.steps -= skipped;
            lower.precision.loss_scale.initial = std::ldexp(1.0, static_cast<int>(20 - skipped));
            check_equal_training(testing::train_world(lower).front(), rank);
        }
}

TEST_CASE("an overflow at the minimum scale ends every rank with scale, step and advice") {
    for (const std::vector<int>& sizes : kWorlds)
        for (const int stage : {0, 3}) {
            TrainingCase job = fp16_case(sizes, 4 * kLowScale);
            job.stage = stage;
            job.precision.loss_scale.minimum = 2 * kLowScale;
            job.make_model = two_losses(kAll);
            std::string text = "it ran";
            try {
                (void)testing::train_world(job);
            } catch (const Error& error) {
                CHECK(error.code() == ExitCode::kDiverged);
                text = error.what();
            }
            CHECK_THAT(text, Catch::Contains("step 2:") && Catch::Contains("minimum, 32768") &&
                                 Catch::Contains("fp16.min_loss_scale") &&
                                 Catch::Contains("lower optimizer.params.lr"));
        }
}

}  // namespace dslaunch

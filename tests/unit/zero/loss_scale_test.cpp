// fp16 training through the trainer: overflows are skipped by every rank alike, the scale falls, the
// run equals one that began at the lower scale, and at the minimum it ends with advice.
#include "support/catch.h"
#include "training_world.h"

namespace dslaunch {
namespace {

using testing::RankOutcome;
using testing::TrainingCase;

// Two separate losses, so that a target too far away spoils the gradient of one parameter alone.
const char* const kTwoLosses =
    "def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:\n"
    "    a = torch.matmul(x, self.first) - y\n"
    "    b = torch.matmul(x, self.second) - z\n"
    "    return (a * a).mean() + (b * b).mean()\n";

// Micro batch BAD has targets of the second loss that are 8 times as far away; the batches begin
// with number FIRST.
std::function<testing::TrainedModel()> two_losses(int64_t bad, int64_t first = 0) {
    return [bad, first] {
        testing::TrainedModel trained{
            test::script_model(kTwoLosses, {{"first", testing::wave({7, 4}, 0.1) * 0.1},
                                            {"second", testing::wave({7, 5}, 0.2) * 0.1}}),
            {},
            {}};
        trained.batch = [bad, first](const SegmentedModel&,
                                     int64_t micro_batch) -> std::vector<c10::IValue> {
            const int64_t m = micro_batch + first;
            const auto start = static_cast<double>(m);
            const double far = m == bad ? 8.0 : 1.0;
            return {testing::wave({2, 7}, 31.0 * start), testing::wave({2, 4}, 17.0 * start),
                    testing::wave({2, 5}, 13.0 * start) * far};
        };
        return trained;
    };
}

// A gradient of an output is 2 * difference / numel * scale: at 2^15 with differences below 2 at
// most 2^15 * 4 / 8 = 16384, with those of the far targets, above 7 somewhere, more than the
// 65504 that fp16 holds only when they are summed... the product with x decides; 2^17 is ample.
TrainingCase fp16_case(std::vector<int> sizes, double scale) {
    TrainingCase job{"fp16", std::move(sizes)};
    job.optimizer.lr = 0.01;
    job.micro_step = true;
    job.segments = 1;
    job.precision.compute = DType::kF16;
    job.precision.skip_nonfinite_steps = true;
    job.precision.loss_scale = {
        .dynamic = true, .initial = scale, .minimum = 1, .window = 1000, .hysteresis = 1};
    job.make_model = two_losses(-1);
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

}  // namespace

// Moments in memory in fewer bits than fp32: training with them, and its checkpoints.
#include "support/catch.h"
#include "unit/zero/training_reference.h"
#include "unit/zero/training_world.h"

using namespace dslaunch;
using namespace dslaunch::testing;

namespace {

TrainingCase packed_case(const std::vector<int>& sizes, StatePacking first, StatePacking second) {
    TrainingCase job{"packed", sizes, kAdamW};
    job.offload.packed_in_memory = true;
    job.offload.packings = {first, second};
    return job;
}

}  // namespace

TEST_CASE("training with moments in fewer bits stays near the reference from stage 1 on") {
    for (const std::vector<int>& sizes : {std::vector<int>{1}, {2}, {3}, {8}, {2, 1}}) {
        const RankOutcome reference = train_reference({"packed", sizes, kAdamW});
        for (int stage = 1; stage <= 3; ++stage)
            for (const auto& [first, second, tolerance] :
                 {std::tuple{StatePacking::kNone, StatePacking::kNone, kTolerance},
                  {StatePacking::kBf16, StatePacking::kBf16, 2e-3},
                  {StatePacking::kInt8, StatePacking::kUint8Root, 0.12}}) {
                TrainingCase job = packed_case(sizes, first, second);
                job.stage = stage;
                CAPTURE(sizes, stage, static_cast<int>(first));
                const std::vector<RankOutcome> ranks = train_world(job);
                double worst = 0;
                for (const RankOutcome& rank : ranks) {
                    CHECK(equal_bits(rank, ranks.front()));
                    for (const auto& [name, tensor] : reference.parameters)
                        worst = std::max(worst, (rank.parameters.at(name).to(at::kDouble) - tensor)
                                                    .abs()
                                                    .max()
                                                    .item<double>());
                }
                CHECK(worst < tolerance);
                // The moments are really not fp32.
                if (first != StatePacking::kNone) CHECK(worst > kTolerance / 10);
            }
    }
}

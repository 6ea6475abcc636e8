#include "plan/choose/schedule_choice.h"

#include <algorithm>
#include <random>

#include "support/catch.h"
#include "unit/plan/pipeline/schedule_check.h"

namespace dslaunch {

using namespace plan;

namespace {

double bubble_of(const PipelineSchedule& schedule, const PartCost& cost) {
    const PipelineShape& shape = schedule.shape;
    const std::vector<PartCost> costs(static_cast<size_t>(shape.parts()), cost);
    return simulate_pipeline(schedule, costs).step_s -
           shape.parts() / shape.stages * shape.micro_batches *
               (cost.forward_s + cost.backward_input_s + cost.backward_weight_s);
}

PipelineSchedule best_of(const PipelineShape& shape, const PartCost& cost) {
    return best_zero_bubble_v(shape,
                              std::vector<PartCost>(static_cast<size_t>(shape.parts()), cost));
}

}  // namespace

TEST_CASE("any costs give an order that can be run, never slower than the regular one") {
    std::mt19937 random(11);
    int faster_count = 0;
    for (int stages = 1; stages <= 8; ++stages)
        for (int micro_batches = 1; micro_batches <= 17; ++micro_batches) {
            const PipelineShape shape{stages, 2, micro_batches};
            std::vector<PartCost> costs;
            for (int part = 0; part < shape.parts(); ++part)
                costs.push_back(
                    {static_cast<double>(random() % 9), static_cast<double>(random() % 9),
                     static_cast<double>(random() % 9), static_cast<double>(random() % 3)});
            const PipelineSchedule best = best_zero_bubble_v(shape, costs);
            INFO("stages " << stages << " micro batches " << micro_batches);
            REQUIRE(check_schedule(best) == std::vector<std::string>{});
            const double best_s = simulate_pipeline(best, costs).step_s;
            const double regular_s =
                simulate_pipeline(make_schedule(ScheduleKind::kZeroBubbleV, shape), costs).step_s;
            REQUIRE(best_s <= regular_s);
            if (best_s < regular_s) ++faster_count;
        }
    CHECK(faster_count > 8 * 17 / 2);
}

TEST_CASE("where weights take as long as anything else, all that is left is the way to the last") {
    // The last stage cannot begin before stages - 1 forwards have ended, and the first stage cannot
    // end before as many backwards after the last stage's. No schedule can be below either.
    for (const PartCost& cost : {PartCost{1, 1, 1}, PartCost{1, 2, 2}, PartCost{1, 1, 3},
                                 PartCost{1, 3, 3}, PartCost{2, 1, 3}})
        for (int stages = 1; stages <= 8; ++stages)
            for (int micro_batches = stages; micro_batches <= 3 * stages; ++micro_batches) {
                INFO("stages " << stages << " micro batches " << micro_batches);
                const double bubble = bubble_of(best_of({stages, 2, micro_batches}, cost), cost);
                const double bound = (stages - 1) * std::max(cost.forward_s, cost.backward_input_s);
                CHECK(bubble >= bound);
                // Few micro batches leave too little to fill gaps with.
                if (micro_batches >= 2 * stages) CHECK(bubble == bound);
            }
}

TEST_CASE("the regular order has gaps where the halves of a step differ in length") {
    const PartCost cost{1, 1, 3};
    const PipelineShape shape{8, 2, 17};
    CHECK(bubble_of(make_schedule(ScheduleKind::kZeroBubbleV, shape), cost) == 19);
    CHECK(bubble_of(best_of(shape, cost), cost) == 7);
}

}  // namespace dslaunch

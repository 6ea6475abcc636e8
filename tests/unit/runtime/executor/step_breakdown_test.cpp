#include "runtime/executor/step_breakdown.h"

#include <vector>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::runtime;
using std::chrono::milliseconds;

TEST_CASE("the time of steps is told by kind of work, as means") {
    plan::StepPlan step;
    std::vector<plan::InstructionSpan> spans;
    const auto add = [&](plan::Op op, int64_t ms) {
        step.instructions.emplace_back().op = op;
        spans.push_back({milliseconds(100), milliseconds(100 + ms)});
    };
    add(plan::Op::kForward, 3);
    add(plan::Op::kBackward, 7);
    add(plan::Op::kBackwardWeight, 1);
    add(plan::Op::kReduce, 2);
    add(plan::Op::kUpdate, 5);
    StepBreakdown breakdown;
    breakdown.add(step, spans, milliseconds(4));
    CHECK(breakdown.take() ==
          "forward 3.0 ms, backward 8.0 ms, reduce 2.0 ms, update 5.0 ms, waiting 4.0 ms");
    breakdown.add(step, spans, milliseconds(0));
    spans[0].end += milliseconds(3);
    breakdown.add(step, spans, milliseconds(1));
    CHECK(breakdown.take() ==
          "forward 4.5 ms, backward 8.0 ms, reduce 2.0 ms, update 5.0 ms, waiting 0.5 ms");
}

TEST_CASE("every op of a plan is some kind of work") {
    StepBreakdown breakdown;
    for (int op = 0; op <= static_cast<int>(plan::Op::kUpdateRest); ++op) {
        plan::StepPlan step;
        step.instructions.emplace_back().op = static_cast<plan::Op>(op);
        const std::vector<plan::InstructionSpan> spans = {{milliseconds(0), milliseconds(1)}};
        breakdown.add(step, spans, {});
        INFO(op);
        CHECK_THAT(breakdown.take(), Catch::EndsWith(" 1.0 ms"));
    }
}

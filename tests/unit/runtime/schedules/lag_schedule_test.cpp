// The parts of the model that each step updates if updates may lag.
#include "runtime/schedules/exchange_schedule.h"

#include <string>

#include "support/catch.h"

namespace dslaunch::runtime {
namespace {

// Returns one letter per step: W updates everything, w everything and a choice, p important units,
// c these and a choice, l runs a late update beside, f fills one, F fills one and makes a choice.
std::string letters(const config::LaggingConfig& config, int64_t updates) {
    std::string text;
    for (int64_t update = 1; update <= updates; ++update) {
        const plan::LagPlan plan = lag_of(config, update);
        CHECK(plan.on);
        CHECK(plan.overlaps == config.overlap);
        switch (plan.kind) {
            case plan::Lag::kWhole:
                text += plan.selects ? 'w' : 'W';
                break;
            case plan::Lag::kPartial:
                text += plan.fills ? (plan.selects ? 'F' : 'f') : (plan.selects ? 'c' : 'p');
                break;
            case plan::Lag::kLate:
                text += plan.fills ? (plan.selects ? 'X' : 'x') : 'l';
                break;
        }
    }
    return text;
}

}  // namespace

TEST_CASE("steps update everything, then important units, and the rest in intervals") {
    CHECK(letters({true, 0.1, 3, 6, false, 0}, 14) == "wppWppwppWppwp");
    CHECK(letters({true, 0.1, 3, 3, false, 2}, 10) == "Wwppwppwpp");
    CHECK(letters({true, 0.1, 3, 6, true, 0}, 14) == "wppflpFlpflpFl");
    CHECK(letters({true, 0.1, 1, 2, true, 1}, 6) == "wfXxXx");
    CHECK(letters({true, 0.1, 1, 1, false, 0}, 4) == "wwww");
    CHECK(!lag_of({}, 7).on);
    CHECK(lag_of({}, 7) == plan::LagPlan{});
}

}  // namespace dslaunch::runtime

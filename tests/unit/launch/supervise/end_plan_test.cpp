#include "launch/supervise/end_plan.h"

#include "support/catch.h"

namespace dslaunch::launch {
namespace {

constexpr EndPlan::Time at(int seconds) {
    return EndPlan::Time(std::chrono::seconds(seconds));
}

}  // namespace

TEST_CASE("the earliest reason to end all ranks decides") {
    EndPlan plan;
    CHECK(plan.deadline() == kNever);
    CHECK_FALSE(plan.has_end());
    CHECK_FALSE(plan.lets_save());
    plan.let_save_until(at(30));
    CHECK(plan.deadline() == at(30));
    CHECK_FALSE(plan.has_end());
    plan.end_by(at(40));
    CHECK(plan.deadline() == at(30));
    plan.end_by(at(10));
    CHECK(plan.deadline() == at(10));
    // A later failure does not give more time.
    plan.end_by(at(50));
    CHECK(plan.deadline() == at(10));
    CHECK(plan.has_end());
    CHECK_FALSE(plan.is_now());
}

TEST_CASE("a second request for saving gives its own time, and an end at once stays asked for") {
    EndPlan plan;
    plan.let_save_until(at(30));
    plan.let_save_until(at(20));
    CHECK(plan.deadline() == at(20));
    plan.end_now();
    CHECK(plan.is_now());
    CHECK(plan.deadline() == at(20));
}

}  // namespace dslaunch::launch

#include "runtime/train/step_timer.h"

#include "support/catch.h"

namespace dslaunch::runtime {

TEST_CASE("work between two steps counts for the whole run, but for no step") {
    using std::chrono::seconds;
    FakeClock clock;
    StepTimer timer(clock);
    CHECK(timer.total() == Duration{0});
    CHECK(timer.longest() == Duration{0});
    clock.sleep_for(seconds(9));  // before the first step
    timer.skip();
    clock.sleep_for(seconds(1));
    timer.begin();
    clock.sleep_for(seconds(2));
    CHECK(timer.end_step() == seconds(2));
    clock.sleep_for(seconds(7));  // an evaluation
    timer.skip();
    clock.sleep_for(seconds(3));
    CHECK(timer.end_step() == seconds(3));
    clock.sleep_for(seconds(1));
    CHECK(timer.end_step() == seconds(1));
    clock.sleep_for(seconds(5));  // the last save
    CHECK(timer.longest() == seconds(3));
    CHECK(timer.total() == seconds(13));
}

}  // namespace dslaunch::runtime

#include "runtime/train/step_line.h"

#include "support/catch.h"

namespace dslaunch::runtime {

namespace {

void pass(FakeClock& clock, double seconds) {
    clock.sleep_for(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
}

DoneStep step_of(int64_t step, double step_ms) {
    return {.step = step,
            .loss = 2.5,
            .lr = 1e-3,
            .step_ms = step_ms,
            .units_per_step = 64,
            .unit = "tok",
            .rss = mib(668)};
}

}  // namespace

TEST_CASE("the line tells the first step while it lasts, then what the newest one was") {
    FakeClock clock;
    StepLine line(clock, 60);
    CHECK(line.text(0).empty());
    line.begin_step(1);
    CHECK(line.text(0) == "step 1/60, 0 s (0 %)");
    pass(clock, 12);
    CHECK(line.text(0.354) == "step 1/60, 12 s (35 %)");
    line.end_step(step_of(1, 12'000));
    line.begin_step(2);
    // 59 steps of 12 s are 11 min 48 s, and 64 tokens in 12 s 5.33 a second.
    CHECK(line.text(0) ==
          "step 1/60  loss 2.5000  left 0:11:48  lr 0.001  12000 ms/step  5.33 tok/s  668.0 MiB");
    pass(clock, 4);
    CHECK(line.text(0.5) ==
          "step 2/60, 4 s (50 %)  loss 2.5000  left 0:11:44  lr 0.001  12000 ms/step  5.33 tok/s"
          "  668.0 MiB");
}

TEST_CASE("a step's time is that of the newest ones, without the first") {
    FakeClock clock;
    StepLine line(clock, 60);
    for (int64_t step = 1; step <= 50; ++step) {
        line.begin_step(step);
        line.end_step(step_of(step, step == 1 ? 60'000 : 32));
    }
    // 10 steps of 32 ms; 64 tokens in each.
    CHECK(line.text(0) ==
          "step 50/60  loss 2.5000  left 0:00:00  lr 0.001  32.0 ms/step  2000 tok/s  668.0 MiB");
}

TEST_CASE("a step's time is the mean of the first ones, also after a resume") {
    FakeClock clock;
    StepLine line(clock, 60);
    for (const auto& [step, ms] : {std::pair{41, 9'000.0}, {42, 300.0}, {43, 500.0}, {44, 400.0}}) {
        line.begin_step(step);
        line.end_step(step_of(step, ms));
    }
    CHECK(line.text(0).starts_with("step 44/60  loss 2.5000  left 0:00:06  lr 0.001  400 ms/step"));
}

TEST_CASE("evaluating and saving are told with their time, and belong to no step") {
    FakeClock clock;
    StepLine line(clock, 60);
    line.begin_other("evaluating");
    pass(clock, 3);
    CHECK(line.text(0) == "step 0/60, evaluating 3 s");
    line.do_other(0.255);
    CHECK(line.text(0) == "step 0/60, evaluating 3 s (26 %)");
    line.begin_step(1);
    pass(clock, 1);
    line.end_step(step_of(1, 1'000));
    line.begin_other("saving");
    pass(clock, 120);
    CHECK(line.text(0.9).starts_with("step 1/60, saving 0:02:00  loss 2.5000  left 0:00:59  "));
    line.begin_step(2);
    CHECK(line.text(0).starts_with("step 1/60  loss 2.5000  left 0:00:59  "));
}

TEST_CASE("after the last step no further one begins") {
    FakeClock clock;
    StepLine line(clock, 2);
    for (const int64_t step : {1, 2}) {
        line.begin_step(step);
        line.end_step(step_of(step, 1'000));
    }
    pass(clock, 30);
    CHECK(line.text(0).starts_with("step 2/2  loss 2.5000  left 0:00:00"));
}

TEST_CASE("what is done before the first step is told once a second is over") {
    FakeClock clock;
    Activity activity(clock);
    activity.begin("setting up: reading the model");
    pass(clock, 0.5);
    CHECK(activity.text().empty());
    pass(clock, 2);
    CHECK(activity.text() == "setting up: reading the model  2 s");
    activity.begin("setting up: planning a step");
    CHECK(activity.text() == "setting up: planning a step  0 s");
    activity.begin({});
    CHECK(activity.text().empty());
}

}  // namespace dslaunch::runtime

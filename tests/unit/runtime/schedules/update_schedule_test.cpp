#include "runtime/schedules/update_schedule.h"

#include "runtime/schedules/learning_rate.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::config;
using namespace dslaunch::runtime;

TEST_CASE("a skipped step is no update: the rate stays, and only the loss scale falls") {
    RunConfig config;
    config.optimizer.lr = 0.5;
    config.scheduler.kind = SchedulerKind::kLinear;
    config.scheduler.warmup_num_steps = 4;
    config.scheduler.total_num_steps = 20;
    config.precision.loss_scale.dynamic = true;
    config.precision.loss_scale.initial = 1024;
    config.precision.loss_scale.hysteresis = 1;
    UpdateSchedule schedule(config, 2, std::nullopt);
    CHECK(schedule.lr() == 0);
    CHECK(schedule.updates() == 2);
    CHECK(schedule.scale() == 1024);
    CHECK_FALSE(schedule.betas().has_value());
    schedule.begin_step();
    CHECK(schedule.lr() == learning_rate(config.scheduler, 0.5, 2));
    CHECK(schedule.end_step(/*is_skipped=*/true));
    CHECK(schedule.updates() == 2);
    CHECK(schedule.scale() == 512);
    schedule.begin_step();
    CHECK(schedule.lr() == learning_rate(config.scheduler, 0.5, 2));
    CHECK_FALSE(schedule.end_step(/*is_skipped=*/false));
    CHECK(schedule.updates() == 3);
    // The rate is the last step's until the next step begins.
    CHECK(schedule.lr() == learning_rate(config.scheduler, 0.5, 2));
    schedule.begin_step();
    CHECK(schedule.lr() == learning_rate(config.scheduler, 0.5, 3));

    // A resumed run continues with the saved scale.
    const UpdateSchedule resumed(config, 3, schedule.scale_state());
    CHECK(resumed.scale() == 512);
    CHECK(resumed.scale_state() == schedule.scale_state());
}

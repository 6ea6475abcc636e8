// The time of steps by kind of work, like DeepSpeed's wall_clock_breakdown. It is computed from the
// times at which the plan's instructions ran. Data path: executor -> [here] -> the log. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "plan/step/step_plan.h"

namespace dslaunch::runtime {

// The time of one kind of work in a step.
struct WorkTime {
    const char* work;  // "forward"
    double ms;
};

// Sums up the times of steps.
class StepBreakdown {
  public:
    // Adds a step of PLAN. Instruction i ran in SPANS[i], and the compute lane waited for other
    // lanes for WAITED.
    void add(const plan::StepPlan& plan, std::span<const plan::InstructionSpan> spans,
             Duration waited);

    // Returns the times of the step that was added last, without kinds that took no time; empty if
    // no step was added.
    [[nodiscard]] std::vector<WorkTime> newest() const;
    // Returns "forward 12.3 ms, backward 24.6 ms, …, waiting 1.2 ms": the means over the steps
    // added, without kinds that took no time. Then starts over. Lanes work at the same time, so the
    // sum may exceed a step's time. REQUIRES: a step was added.
    [[nodiscard]] std::string take();

  private:
    enum class Work : uint8_t {
        kData,
        kForward,
        kRecompute,
        kBackward,
        kGather,
        kReduce,
        kUpdate,
        kDisk,
        kStages,
        kWaiting
    };
    static constexpr size_t kWorks = 10;
    [[nodiscard]] static Work work_of(plan::Op op);

    std::array<Duration, kWorks> times_{};
    std::array<Duration, kWorks> newest_{};
    int64_t steps_ = 0;
};

}  // namespace dslaunch::runtime

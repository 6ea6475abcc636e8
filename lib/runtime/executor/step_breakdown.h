// The time of steps by kind of work: DeepSpeed's wall_clock_breakdown, from when the plan's
// instructions ran. Data path: executor -> [here] -> the log. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "base/clock.h"
#include "plan/step/step_plan.h"

namespace dslaunch::runtime {

class StepBreakdown {
  public:
    // Adds a step of PLAN whose instruction i ran in SPANS[i], and in which the compute lane waited
    // for other lanes for WAITED.
    void add(const plan::StepPlan& plan, std::span<const plan::InstructionSpan> spans,
             Duration waited);

    // Returns "forward 12.3 ms, backward 24.6 ms, …, waiting 1.2 ms": means over the steps added,
    // without kinds that took no time, and starts over. Lanes work side by side, so that the sum
    // may exceed a step. REQUIRES: a step was added.
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
    int64_t steps_ = 0;
};

}  // namespace dslaunch::runtime

// Carries out the steps of a plan on one rank: passes each instruction to the segment runner, to
// the state or to the link between stages, and counts the rank's progress. Data path: trainer ->
// [here] -> executor -> segment runner, ZeRO state, stage link. Threads: one thread runs steps and
// changes plans; any thread may ask for the position.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "plan/step/step_plan.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/device_backend.h"
#include "runtime/comm/host/hang_limit.h"
#include "runtime/compute/segment_runner.h"
#include "runtime/compute/stage_link.h"
#include "runtime/executor/executor.h"
#include "runtime/state/stepping_state.h"
#include "runtime/watch/memory_phases.h"

namespace dslaunch::runtime {

// The place of a rank in a pipeline.
struct StageParts {
    const StageLink* link = nullptr;  // link to the other stages; null: no pipeline
    const Link* far = nullptr;        // link for traffic to other hosts; null if there is none
    int64_t forward_flops = 0;        // of the whole model in one micro step
    std::vector<plan::StagePart> parts = {};  // the plan's parts
    // For each bucket, the stages that sum its gradients, because they share the bucket's tied
    // parameter. The list of an untied bucket is empty.
    std::vector<std::vector<int>> stages_of_bucket = {};

    // Without a pipeline, the rank is stage 0 of 1.
    [[nodiscard]] int stage() const { return link == nullptr ? 0 : link->stage(); }
    [[nodiscard]] int stages() const { return link == nullptr ? 1 : link->stages(); }
};

// The objects that carry out a step. They must outlive the runner.
struct StepRunnerParts {
    const plan::ModelInfo* info = nullptr;
    const plan::StepPlan* plan = nullptr;  // the plan of the first step
    SegmentRunner* segments = nullptr;
    SteppingState* state = nullptr;
    Collectives* collectives = nullptr;  // joins all ranks
    // Additional collectives, for example between subsets of the ranks, or between devices. After a
    // failed step the runner poisons them, which ends all calls that are blocked in them.
    std::vector<Collectives*> groups;
    DeviceBackend* device = nullptr;   // null: the CPU
    MemoryPhases* memory = nullptr;    // null: memory is not sampled
    Duration time_limit = kHangLimit;  // longest time without progress of the device in a step
    StageParts stage;
};

// The position of a rank in its sequence of steps.
struct StepPosition {
    // The number of instructions in all steps so far. The end of each step counts as one more
    // instruction. If the plan has changed, earlier steps count as if they had as many instructions
    // as a step of the present plan.
    uint64_t instructions_done = 0;
    uint64_t instructions_per_step = 1;
    std::string lanes;  // ", compute: Forward of segment 2 (…)" for each lane that is at work
};

// Runs steps; see the top of this file.
class StepRunner final : private InstructionRunner {
  public:
    explicit StepRunner(StepRunnerParts parts);

    // Runs one step of the plan. Throws the first error of any lane; after an error the process
    // must leave by _exit.
    void run_step() { executor_.run_step(); }
    // Switches to PLAN, which must outlive the runner. STEPS is the number of steps that this run
    // has done. Called between steps.
    void change_plan(const plan::StepPlan& plan, int64_t steps);
    // Notes that this rank has reached the end of a step. This counts in position(), so that the
    // positions of all ranks show for which rank the others wait.
    void reach_end() { ++ends_reached_; }

    // Return the present plan, the time of each of its instructions in the last step, and the time
    // for which the compute lane waited in that step. Called between steps.
    [[nodiscard]] const plan::StepPlan& plan() const { return *parts_.plan; }
    [[nodiscard]] std::span<const plan::InstructionSpan> spans() const { return executor_.spans(); }
    [[nodiscard]] Duration compute_waited() const { return executor_.compute_waited(); }
    // Returns the traffic of all collectives and links of this rank since they were made.
    [[nodiscard]] TrafficTable traffic() const;

    // Any thread may call position(), computed() and on_disk().
    [[nodiscard]] StepPosition position() const;
    // Returns the time that the compute lane has worked without waiting for other ranks.
    [[nodiscard]] Duration computed() const { return executor_.worked(plan::Lane::kCompute); }
    // Returns the time of this rank's transfers from and to its disk. Both directions may work at
    // the same time; the longer of the two times is returned.
    [[nodiscard]] Duration on_disk() const {
        return std::max(executor_.worked(plan::Lane::kRead), executor_.worked(plan::Lane::kWrite));
    }

  private:
    void run(const plan::Instruction& instruction) override;
    void carry_out(const plan::Instruction& instruction);
    void poison(const std::string& why) override;
    void check_device() override;
    [[nodiscard]] int segment_of_model(int segment) const override;
    [[nodiscard]] static uint32_t message_number(plan::Lane lane);
    void run_transfer(const plan::Instruction& instruction);
    void run_tie(const plan::Instruction& instruction);

    StepRunnerParts parts_;
    Executor executor_;
    // Guards the plan pointers of this object and of the executor, since other threads call
    // position().
    mutable std::mutex plan_mutex_;
    std::atomic<uint64_t> ends_reached_{0};
    // This number is added to the executor's count of instructions. It makes each step of an
    // earlier plan count as many instructions as a step of the present plan.
    int64_t instructions_before_ = 0;
};

}  // namespace dslaunch::runtime

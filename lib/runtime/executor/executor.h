// The executor runs a step plan with one thread per lane. Each instruction starts when those it
// waits for are done. The compute lane is the caller's thread. A failure in one lane stops all:
// nothing new starts, blocked instructions are poisoned, the first error is thrown. No LibTorch, so
// that it is tested under tsan with a fake runner.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "plan/step/step_plan.h"

namespace dslaunch::runtime {

// The runner carries out instructions. run() is called by the lane's thread, for one instruction of
// a lane at a time. It may block and throws on failure. poison() is called once, from any thread,
// must not block, and ends every wait of run().
class InstructionRunner {
  public:
    virtual ~InstructionRunner() = default;
    virtual void run(const plan::Instruction& instruction) = 0;
    virtual void poison(const std::string& why) = 0;
    // Returns the model's index of SEGMENT of the plan, which people know. In a pipeline the plan
    // numbers a stage's segments from 0 on. Any thread.
    [[nodiscard]] virtual int segment_of_model(int segment) const { return segment; }
};

class Executor {
  public:
    // PLAN and RUNNER must outlive the executor. The compute lane's thread is the caller's.
    Executor(const plan::StepPlan& plan, InstructionRunner& runner);
    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;
    // Joins the lanes. REQUIRES: no step is running. A lane stuck in run() after a failure would be
    // waited for, so after an error the process is expected to leave by _exit.
    ~Executor();

    // Replaces the plan by PLAN between steps. PLAN must outlive the executor. Lanes keep their
    // threads.
    void change_plan(const plan::StepPlan& plan);

    // Runs one whole step. Throws the first error of any lane, whose message begins with the
    // instruction. After an error the executor can only be destroyed.
    void run_step();

    // Returns the instructions done since the start, over all lanes, for a heartbeat. Any thread.
    [[nodiscard]] uint64_t instructions_done() const {
        return instructions_done_.load(std::memory_order_relaxed);
    }
    // Returns the instruction that a lane is in or waits to begin, -1 between steps. Any thread.
    [[nodiscard]] int current(plan::Lane lane) const {
        return current_[static_cast<size_t>(lane)].load(std::memory_order_relaxed);
    }

    // Returns the time since the start in instructions of LANE that never wait for another rank.
    // Any thread.
    [[nodiscard]] Duration worked(plan::Lane lane) const {
        return Duration(worked_ns_[static_cast<size_t>(lane)].load(std::memory_order_relaxed));
    }

    // Returns when each instruction of the last step ran. Called between steps.
    [[nodiscard]] const std::vector<plan::InstructionSpan>& spans() const { return spans_; }

    // Returns the time that the compute lane has waited for another lane in the last step.
    [[nodiscard]] Duration compute_waited() const { return compute_waited_; }

  private:
    void start_lanes();
    void lane_main(plan::Lane lane, uint64_t step);
    void run_lane(plan::Lane lane);
    void run_timed(size_t index);
    void wait_for(const plan::Instruction& instruction);
    void finish(size_t index);
    void fail_step(size_t index, std::exception_ptr error);

    const plan::StepPlan* plan_;
    InstructionRunner& runner_;
    std::array<std::vector<size_t>, plan::kLanes> lanes_;  // instructions of each lane, in order

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<char> done_;     // one per instruction, for this step
    std::vector<char> awaited_;  // one per instruction: another lane waits for it in some step
    uint64_t step_ = 0;          // steps begun
    int lanes_running_ = 0;
    bool stopping_ = false;
    std::exception_ptr error_;
    bool poisoned_ = false;  // true once runner_.poison() has come back

    std::atomic<uint64_t> instructions_done_{0};
    std::array<std::atomic<int>, plan::kLanes> current_{};
    std::array<std::atomic<int64_t>, plan::kLanes> worked_ns_{};
    Duration compute_waited_{};
    TimePoint step_begin_{};
    std::vector<plan::InstructionSpan> spans_;  // one per instruction, written by its lane
    std::array<bool, plan::kLanes> started_{};
    std::vector<std::thread> threads_;
};

}  // namespace dslaunch::runtime

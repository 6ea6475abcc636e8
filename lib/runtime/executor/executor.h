// The executor runs a step plan with one thread per lane. Each instruction starts when the
// instructions that it waits for are done. The compute lane uses the caller's thread. A failure in
// one lane stops all: no instruction starts any more, blocked instructions are poisoned, and the
// first error is thrown. No LibTorch, so that it can be tested under tsan with a fake runner.
//
// A lane may be a stream of a device: then run() queues work on the stream and returns before it is
// done. Every instruction of such a lane is followed by an event. If an instruction waits for
// another lane and both lanes are streams, its stream waits for the other's event; a lane on the
// host waits for the event on the host. So the order on the device follows from the plan's waits
// alone, and times are the device's.
#pragma once

#include <array>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "plan/step/step_plan.h"
#include "runtime/executor/device_lanes.h"
#include "runtime/executor/lane_progress.h"

namespace dslaunch::runtime {

// The runner carries out instructions. Each lane's thread calls run() for the instructions of its
// lane, one at a time. run() may block, and throws on failure. poison() is called once, from any
// thread. It must not block, and must end every wait in run().
class InstructionRunner {
  public:
    virtual ~InstructionRunner() = default;
    // Carries out an instruction; poison() ends its waits.
    virtual void run(const plan::Instruction& instruction) = 0;
    virtual void poison(const std::string& why) = 0;
    // Throws if the device, or a group of devices, has failed. Called by the thread of any lane
    // while it waits for work on a device. Does not block.
    virtual void check_device() {}
    // Returns the index in the model of a segment of the plan, for messages to users. The indices
    // differ in a pipeline, where a plan counts only the segments of its stage, from 0. Any thread.
    [[nodiscard]] virtual int segment_of_model(int segment) const { return segment; }
};

// Runs the steps of a plan; see the top of this file.
class Executor {
  public:
    // PLAN and RUNNER must outlive the executor. The compute lane uses the caller's thread.
    Executor(const plan::StepPlan& plan, InstructionRunner& runner, LaneStreams streams = {});
    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;
    // Joins the lanes. REQUIRES: no step is running. After an error the process should leave by
    // _exit instead: a lane may be stuck in run(), and the destructor would wait for it.
    ~Executor();

    // Replaces the plan by PLAN between steps. PLAN must outlive the executor. Lanes keep their
    // threads.
    void change_plan(const plan::StepPlan& plan);

    // Runs one whole step; all its work on a device is done when it returns. Throws the first error
    // of any lane; its message begins with the instruction. After an error the executor can only be
    // destroyed.
    void run_step();

    // Returns the number of instructions done since the start, over all lanes, for a heartbeat. Any
    // thread.
    [[nodiscard]] uint64_t instructions_done() const { return progress_.done(); }
    // Returns the instruction that a lane is executing or waits to begin; -1 between steps. For a
    // stream it is the instruction that the device is executing. Any thread.
    [[nodiscard]] int current(plan::Lane lane) const { return progress_.current(lane); }
    // Returns the total time that LANE has spent in instructions that never wait for another rank.
    // Any thread.
    [[nodiscard]] Duration worked(plan::Lane lane) const { return progress_.worked(lane); }

    // Returns the time span of each instruction of the last step. Called between steps.
    [[nodiscard]] const std::vector<plan::InstructionSpan>& spans() const { return times_.spans; }

    // Returns the time for which the compute lane waited for other lanes in the last step.
    [[nodiscard]] Duration compute_waited() const { return times_.compute_waited; }

  private:
    // An instruction's end in this step.
    struct End {
        bool is_awaited = false;  // another lane waits for it
        bool is_done = false;     // set only if it is awaited
    };
    // The times of a step.
    struct StepTimes {
        TimePoint begin{};
        Duration compute_waited{};
        std::vector<plan::InstructionSpan> spans;  // one per instruction, written by its lane
    };
    // The first error of a step.
    struct Failure {
        std::exception_ptr error;
        bool is_poisoned = false;  // true once the runner's poison() has returned
    };
    void start_lanes();
    void lane_main(plan::Lane lane, uint64_t step);
    void run_lane(plan::Lane lane);
    void run_timed(size_t index);
    void run_on_device(size_t index);
    void wait_for(const plan::Instruction& instruction);
    void order_after(const plan::Instruction& instruction);
    void finish(size_t index);
    void await_device(size_t index);
    template <typename Ready>
    void wait_until(std::unique_lock<std::mutex>& lock, const Ready& ready);
    void look_at_device(std::unique_lock<std::mutex>& lock);
    void await_streams();
    void fail_step_at(size_t index, std::exception_ptr error);
    void note_device_times();
    void fail_step(size_t index, std::exception_ptr error);

    const plan::StepPlan* plan_;
    InstructionRunner& runner_;
    LaneOrder lanes_;
    LaneProgress progress_;

    std::mutex mutex_;  // guards the members up to the times
    std::condition_variable changed_;
    DeviceLanes device_;
    std::vector<End> ends_;  // one per instruction
    uint64_t step_ = 0;      // steps begun
    int lanes_running_ = 0;
    bool stopping_ = false;
    Failure failure_;

    StepTimes times_;
    std::array<std::thread, plan::kLanes> threads_;  // of all lanes that have run, except compute
};

}  // namespace dslaunch::runtime

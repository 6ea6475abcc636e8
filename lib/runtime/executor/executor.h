// The executor runs a step plan with one thread per lane. Each instruction starts when those it
// waits for are done. The compute lane is the caller's thread. A failure in one lane stops all:
// nothing new starts, blocked instructions are poisoned, the first error is thrown. No LibTorch, so
// that it is tested under tsan with a fake runner.
//
// A lane may be a stream of a device: run() then puts work on the stream and returns before it is
// done. Every instruction of such a lane has an event after it. If both lanes are streams, one
// stream waits for the other's event; a lane of the host waits for it on the host. So the order on
// the device follows from the plan's waits alone, and times are the device's.
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
#include "device/stream.h"
#include "plan/step/step_plan.h"

namespace dslaunch::runtime {

// The lanes that are streams of a device, none by default. The streams must outlive the executor.
struct LaneStreams {
    std::array<device::Stream*, plan::kLanes> of_lane{};  // null: the lane works on the host
    // The longest time in which no instruction on the device ends although some wait to.
    Duration limit = Duration::max();
    // The clock by which the limit is kept. It must outlive the executor; null: the system's.
    const Clock* clock = nullptr;

    [[nodiscard]] device::Stream* of(plan::Lane lane) const {
        return of_lane[static_cast<size_t>(lane)];
    }
};

// The runner carries out instructions. run() is called by the lane's thread, for one instruction of
// a lane at a time. It may block and throws on failure. poison() is called once, from any thread,
// must not block, and ends every wait of run().
class InstructionRunner {
  public:
    virtual ~InstructionRunner() = default;
    virtual void run(const plan::Instruction& instruction) = 0;
    virtual void poison(const std::string& why) = 0;
    // Throws if the device, or a group of devices, has failed since. Called by any lane's thread
    // while it waits for work on a device. Does not block.
    virtual void check_device() {}
    // Returns the model's index of SEGMENT of the plan, which people know. In a pipeline the plan
    // numbers a stage's segments from 0 on. Any thread.
    [[nodiscard]] virtual int segment_of_model(int segment) const { return segment; }
};

class Executor {
  public:
    // PLAN and RUNNER must outlive the executor. The compute lane's thread is the caller's.
    Executor(const plan::StepPlan& plan, InstructionRunner& runner, LaneStreams streams = {});
    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;
    // Joins the lanes. REQUIRES: no step is running. A lane stuck in run() after a failure would be
    // waited for, so after an error the process is expected to leave by _exit.
    ~Executor();

    // Replaces the plan by PLAN between steps. PLAN must outlive the executor. Lanes keep their
    // threads.
    void change_plan(const plan::StepPlan& plan);

    // Runs one whole step; all its work on a device is done at the end. Throws the first error of
    // any lane, whose message begins with the instruction. After an error the executor can only be
    // destroyed.
    void run_step();

    // Returns the instructions done since the start, over all lanes, for a heartbeat. Any thread.
    [[nodiscard]] uint64_t instructions_done() const {
        return instructions_done_.load(std::memory_order_relaxed);
    }
    // Returns the instruction that a lane is in or waits to begin, -1 between steps. For a stream
    // it is the one that the device is at. Any thread.
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
    // An instruction on a device. Both events are recorded again in every step.
    struct DeviceWork {
        std::unique_ptr<device::Event> begin;
        std::unique_ptr<device::Event> end;
    };
    void start_lanes();
    void make_events();
    void lane_main(plan::Lane lane, uint64_t step);
    void run_lane(plan::Lane lane);
    void run_timed(size_t index);
    void run_on_device(size_t index);
    void add_worked(const plan::Instruction& instruction, Duration time);
    void wait_for(const plan::Instruction& instruction);
    void order_after(const plan::Instruction& instruction);
    void finish(size_t index);
    void await_device(size_t index);
    template <typename Ready>
    void wait_until(std::unique_lock<std::mutex>& lock, const Ready& ready);
    void look_at_device(std::unique_lock<std::mutex>& lock);
    void await_streams();
    void retire();
    void retire_lane(size_t lane);
    [[nodiscard]] std::exception_ptr device_error();
    void fail_step_at(size_t index, std::exception_ptr error);
    [[nodiscard]] size_t device_instruction() const;
    [[nodiscard]] TimePoint device_now() const;
    void note_device_times();
    void fail_step(size_t index, std::exception_ptr error);
    [[nodiscard]] bool uses_device() const { return !device_work_.empty(); }
    [[nodiscard]] device::Stream* stream_of(size_t index) const {
        return streams_.of(plan_->instructions[index].lane);
    }

    const plan::StepPlan* plan_;
    InstructionRunner& runner_;
    LaneStreams streams_;
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
    // For each lane that is a stream, how many of its instructions have been put on it in this
    // step, and how many of these are done.
    std::array<size_t, plan::kLanes> given_{};
    std::array<size_t, plan::kLanes> retired_{};
    TimePoint device_progress_{};  // when the device last ended or began to have something to do

    // One per instruction, empty on lanes of the host; empty as a whole if no lane is a stream.
    std::vector<DeviceWork> device_work_;
    // The step's begin on the device, recorded by one of its streams: between steps none has
    // anything to do.
    std::unique_ptr<device::Event> step_mark_;
    device::Stream* marking_ = nullptr;

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

// The lanes of an executor that are streams of a device: the events around each instruction, the
// instructions that the device has finished, and its errors. Data path: executor -> [here] ->
// device. Threads: the executor's lanes. The executor's mutex guards every call except run(),
// order_after(), any() and stream_of(). any() and stream_of() read only members that never change
// within a step.
#pragma once

#include <array>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "device/stream.h"
#include "plan/step/step_plan.h"
#include "runtime/executor/lane_progress.h"

namespace dslaunch::runtime {

// The lanes that are streams of a device, none by default. The streams must outlive the executor.
struct LaneStreams {
    std::array<device::Stream*, plan::kLanes> of_lane{};  // null: the lane works on the host
    // If instructions are queued but none ends on the device for this time, the device counts as
    // hung.
    Duration limit = Duration::max();
    // The clock that measures the limit. It must outlive the executor; null means the system's
    // clock.
    const Clock* clock = nullptr;

    // Returns a lane's stream, or null if the lane works on the host.
    [[nodiscard]] device::Stream* of(plan::Lane lane) const {
        return of_lane[static_cast<size_t>(lane)];
    }
};

// The instructions of each lane, in order, as indices into the plan.
using LaneOrder = std::array<std::vector<size_t>, plan::kLanes>;

// Watches the device; see the top of this file.
class DeviceLanes {
  public:
    // PROGRESS must outlive this object.
    DeviceLanes(const LaneStreams& streams, LaneProgress& progress)
        : streams_(streams), progress_(progress) {}

    // Makes the events for the instructions of PLAN. ORDER gives the instructions of each lane.
    // PLAN and ORDER must exist until the next call of follow() or the end of this object.
    void follow(const plan::StepPlan& plan, const LaneOrder& order);
    // Returns true if the plan has instructions on streams.
    [[nodiscard]] bool any() const { return !work_.empty(); }
    // Returns the stream of an instruction or a lane, or null if it works on the host.
    [[nodiscard]] device::Stream* stream_of(size_t index) const {
        return stream_of(plan_->instructions[index].lane);
    }
    [[nodiscard]] device::Stream* stream_of(plan::Lane lane) const { return streams_.of(lane); }

    // Begins a step, while all streams are idle.
    void begin_step();
    // Calls QUEUE, which must queue instruction INDEX on its stream. Records the instruction's
    // events before and after it.
    template <typename Queue>
    void run(size_t index, Queue&& queue) {
        device::Stream& stream = *stream_of(index);
        stream.record(*work_[index].begin);
        queue();
        stream.record(*work_[index].end);
    }
    // Lets STREAM wait for the end of instruction INDEX, which has been queued.
    void order_after(device::Stream& stream, size_t index) { stream.wait(*work_[index].end); }
    // Counts that instruction INDEX has been queued.
    void add(size_t index);

    // Returns true once the device has finished instruction INDEX. Throws the device's error.
    [[nodiscard]] bool is_done(size_t index) const { return work_[index].end->is_reached(); }
    // Records which instructions the device has finished since the last call. Throws its error.
    void retire();
    // Calls retire(), and throws Error{kHang} if the device has made no progress for too long.
    void look();
    // Records the instructions that the device has finished. Returns the device's error, or null if
    // it has not failed.
    [[nodiscard]] std::exception_ptr error();
    // Returns true while instructions are queued that the device has not finished.
    [[nodiscard]] bool is_busy() const { return given_ != retired_; }
    // Returns the first instruction, in the plan's order, that is queued and not finished: all
    // later ones may wait for it. If the device is idle, returns the plan's last instruction.
    [[nodiscard]] size_t first_unfinished() const;
    // Returns the start and end of an instruction of a finished step, counted from the step's
    // start, or nullopt if the instruction works on the host.
    [[nodiscard]] std::optional<plan::InstructionSpan> span_of(size_t index) const;

  private:
    // The events of an instruction. Both are recorded again in every step.
    struct Work {
        std::unique_ptr<device::Event> begin;
        std::unique_ptr<device::Event> end;
    };
    void retire_lane(size_t lane);
    [[nodiscard]] TimePoint now() const;

    LaneStreams streams_;
    LaneProgress& progress_;
    const plan::StepPlan* plan_ = nullptr;
    const LaneOrder* order_ = nullptr;
    // The events of each instruction; empty for instructions of lanes that work on the host. The
    // whole vector is empty if no lane is a stream.
    std::vector<Work> work_;
    // The step's start on the device. One of the streams records it, which suffices because between
    // steps all streams are idle.
    std::unique_ptr<device::Event> step_mark_;
    device::Stream* marking_ = nullptr;
    // For each lane that is a stream: the number of its instructions that were queued in this step,
    // and the number of them that are done.
    std::array<size_t, plan::kLanes> given_{};
    std::array<size_t, plan::kLanes> retired_{};
    TimePoint last_progress_{};  // when the device last finished work, or got work while idle
};

}  // namespace dslaunch::runtime

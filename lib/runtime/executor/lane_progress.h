// The progress of an executor's lanes, for heartbeats. Data path: executor, its device lanes ->
// [here] -> heartbeats. Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/clock.h"
#include "plan/step/step_plan.h"

namespace dslaunch::runtime {

// Counters of all lanes since the executor was made.
class LaneProgress {
  public:
    LaneProgress() {
        for (std::atomic<int>& current : current_) current = -1;
    }

    // Counts one more instruction that is done.
    void add_done() { done_.fetch_add(1, std::memory_order_relaxed); }
    // Returns the number of instructions done, over all lanes.
    [[nodiscard]] uint64_t done() const { return done_.load(std::memory_order_relaxed); }

    // Notes that LANE is at instruction INDEX; -1 if it is at no instruction.
    void set_current(plan::Lane lane, int index) {
        current_[static_cast<size_t>(lane)].store(index, std::memory_order_relaxed);
    }
    // Returns the index, in the plan, of the instruction that a lane carries out or waits to begin;
    // -1 if there is none.
    [[nodiscard]] int current(plan::Lane lane) const {
        return current_[static_cast<size_t>(lane)].load(std::memory_order_relaxed);
    }

    // Counts TIME of INSTRUCTION. Does nothing for an instruction that may wait for another rank.
    void add_worked(const plan::Instruction& instruction, Duration time) {
        // The instructions that never wait for another rank are the segment runner's, and transfers
        // from and to this rank's disk.
        const bool is_alone = instruction.segment >= 0 ? instruction.lane == plan::Lane::kCompute
                                                       : instruction.op == plan::Op::kLoad ||
                                                             instruction.op == plan::Op::kRead ||
                                                             instruction.op == plan::Op::kWrite;
        if (!is_alone) return;
        const auto ns = std::chrono::nanoseconds(time).count();
        worked_ns_[static_cast<size_t>(instruction.lane)].fetch_add(ns, std::memory_order_relaxed);
    }
    // Returns the time counted for LANE.
    [[nodiscard]] Duration worked(plan::Lane lane) const {
        return Duration(worked_ns_[static_cast<size_t>(lane)].load(std::memory_order_relaxed));
    }

  private:
    std::atomic<uint64_t> done_{0};
    std::array<std::atomic<int>, plan::kLanes> current_{};
    std::array<std::atomic<int64_t>, plan::kLanes> worked_ns_{};
};

}  // namespace dslaunch::runtime

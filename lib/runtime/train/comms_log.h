// The log of what ranks exchange (DeepSpeed's comms_logger): count, bytes, time and rates of every
// operation, computed from the times at which the plan's instructions ran. It adds no waits and no
// measurements to a run. Data path: executor, plan, links -> [here] -> the log. Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "base/clock.h"
#include "config/run/run_config.h"
#include "plan/step/step_plan.h"
#include "runtime/comm/traffic.h"

namespace dslaunch::runtime {

// Collects the operations of steps; see the top of this file.
class CommsLog {
  public:
    // RANKS is the number of ranks between which an instruction moves data. REDUCES_TO_ALL is true
    // if sums go to all these ranks, false if they go only to the owners of the summed elements.
    CommsLog(config::CommsLoggerConfig config, int ranks, bool reduces_to_all)
        : config_(std::move(config)), ranks_(ranks), reduces_to_all_(reduces_to_all) {}

    // Returns true if the config wants the log.
    [[nodiscard]] bool enabled() const { return config_.enabled; }
    // Adds a step of PLAN. Instruction i ran in the time span SPANS[i]. MOVED is the traffic with
    // other hosts. Two kinds of traffic have no instructions, so the log takes them from MOVED:
    // exchanges of layers that ranks share, and agreements between ranks.
    void add(int64_t step, const plan::StepPlan& plan, std::span<const plan::InstructionSpan> spans,
             const TrafficTable& moved);
    // Returns a line with count, time and rates for each operation and size; empty if no operation
    // ran.
    [[nodiscard]] std::string summary() const;

    // Returns the factor that turns an operation's bytes per second into bus bandwidth. It is the
    // number of bytes on the slowest link per byte of the result. See NVIDIA's nccl-tests,
    // doc/PERFORMANCE.md.
    [[nodiscard]] static double bus_factor(TrafficKind kind, bool to_all, int ranks);

  private:
    struct Sum {
        int64_t count = 0;
        Duration time{0};
    };
    [[nodiscard]] bool logs(TrafficKind kind) const;
    [[nodiscard]] double bus_rate(TrafficKind kind, double rate) const {
        return rate * bus_factor(kind, reduces_to_all_, ranks_);
    }

    config::CommsLoggerConfig config_;
    int ranks_;
    bool reduces_to_all_;
    std::map<std::pair<TrafficKind, int64_t>, Sum> sums_;  // by kind and bytes
    std::map<TrafficKind, Bytes> inside_;  // bytes sent by operations inside of instructions
};

}  // namespace dslaunch::runtime

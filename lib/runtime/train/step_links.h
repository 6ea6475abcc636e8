// What a step sent between hosts beside what its plan says: the tables of a host's ranks, told with
// the facts of a step. Data path: links' meters, plan -> [here] -> metrics, the run's last lines.
// Threads: one.
#pragma once

#include <array>
#include <string>

#include "base/bytes.h"
#include "base/text/json.h"
#include "runtime/comm/traffic.h"

namespace dslaunch::runtime {

// Of one rank, or of all ranks of a host.
struct StepLinks {
    TrafficTable moved;
    std::array<Bytes, kTrafficKinds> planned{};  // sent, by the plan's formula

    StepLinks& operator+=(const StepLinks& more);
};

// True if the plan counts the bytes of KIND: those of reductions, gathers, norms and stages, not
// those of layers that ranks share, and not the agreements of ranks.
[[nodiscard]] bool is_planned(TrafficKind kind);

// {"by_kind": {"reduce": {"sent", "received", "planned"}}, "by_host": {"1": {"sent", "received"}}},
// without kinds and hosts that had none.
void links_json(const StepLinks& links, JsonWriter& json);
// "reduce 1.2 MiB (by the plan 1.2 MiB), control 3.1 KiB; to host 1 …" for STEPS steps; empty if
// nothing was sent.
[[nodiscard]] std::string links_text(const StepLinks& links, int64_t steps);

}  // namespace dslaunch::runtime

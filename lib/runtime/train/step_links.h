// Compares the bytes that a step sent between hosts with the plan's bytes, for the ranks of each
// host. The tables are sent with the facts of a step. Data path: links' meters, plan -> [here] ->
// metrics, the run's last lines. Threads: one.
#pragma once

#include <array>
#include <string>

#include "base/bytes.h"
#include "base/text/json.h"
#include "runtime/comm/traffic.h"

namespace dslaunch::runtime {

// The bytes that one rank, or all ranks of a host, moved.
struct StepLinks {
    TrafficTable moved;
    std::array<Bytes, kTrafficKinds> planned{};  // sent, by the plan's formula

    // Adds MORE, kind by kind and host by host.
    StepLinks& operator+=(const StepLinks& more);
};

// Returns true if the plan counts the bytes of KIND. It counts all kinds except kTensor and
// kControl.
[[nodiscard]] bool is_planned(TrafficKind kind);

// Writes {"by_kind": {"reduce": {"sent", "received", "planned"}}, "by_host": {"1": {"sent",
// "received"}}}, without the kinds and hosts that have no bytes.
void links_json(const StepLinks& links, JsonWriter& json);
// Returns "reduce 1.2 MiB (by the plan 1.2 MiB), control 3.1 KiB; to host 1 …" for STEPS steps;
// empty if nothing was sent.
[[nodiscard]] std::string links_text(const StepLinks& links, int64_t steps);

}  // namespace dslaunch::runtime

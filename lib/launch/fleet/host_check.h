// The state of every host, from asking it: below `dslaunch hosts check`.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/agent/device_report.h"
#include "launch/agent/node_report.h"
#include "launch/fleet/fleet.h"
#include "launch/protocol/clock_offset.h"

namespace dslaunch::launch {

struct HostState {
    std::vector<std::string> faults;            // empty: the host is good
    std::chrono::milliseconds answer_time{-1};  // from the start until its hello; -1: none came
    bool same_binary = false;
    std::optional<NodeReport> report;
    ClockOffset clock;
    DeviceUseReport devices;  // its GPUs, and who holds them
};

struct HostQuestions {
    std::string directory;             // whose free space is asked for
    bool directory_is_needed = false;  // true: a host without it is bad
    std::string own_hash;              // SHA-256 of this program; empty: not compared
};

// Asks every host that serves, all at once and three times each; the fastest answer tells the
// clock. Then asks for GPUs, which a driver may take seconds to tell. REQUIRES: fleet.connect()
// with want_binary_hash unless own_hash is empty.
[[nodiscard]] std::vector<HostState> check_hosts(Fleet& fleet, const HostQuestions& questions);

}  // namespace dslaunch::launch

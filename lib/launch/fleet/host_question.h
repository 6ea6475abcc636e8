// Questions to the agents of several hosts, and their answers. Data path: `stop`, `ps --devices`,
// `hosts check` -> here -> fleet. One thread: the caller's.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/agent/device_report.h"
#include "launch/agent/machine_facts.h"
#include "launch/fleet/fleet.h"

namespace dslaunch::launch {

struct HostQuestion {
    FrameKind kind = FrameKind::kPing;
    std::string payload;
    FrameKind answer_kind = FrameKind::kPong;
    std::chrono::milliseconds connect_max{30'000};
    std::chrono::milliseconds answer_max{30'000};  // from the greeting of the last host on
};

struct HostAnswer {
    std::string host;
    std::optional<std::string> payload;
    std::string error;  // the reason why there is no payload
};

// Starts agents on HOSTS over TRANSPORT, asks each as soon as it has said hello, and ends them. A
// host that fails does not keep the others. SIGNAL_FD as Fleet's: after a wish to end, hosts that
// have not answered have an error.
[[nodiscard]] std::vector<HostAnswer> ask_hosts(const std::vector<HostAddress>& hosts,
                                                Transport& transport, int signal_fd,
                                                const HostQuestion& question);

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

// One question to the agents of several hosts, and their answers. Data path: `stop`, `ps --devices`
// -> here -> fleet. One thread: the caller's.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

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

}  // namespace dslaunch::launch

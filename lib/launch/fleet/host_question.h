// One question to the agents of several hosts, outside a job: agents are started, greet, answer and
// end. Every host has its answer or its own error. One thread; blocks.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/protocol/frame.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

struct HostAnswer {
    std::string host;
    std::string error;                   // why there is no answer, printable
    std::optional<std::string> payload;  // payload of the answer
};

// Sends QUESTION to every host and waits for one frame of the kind ANSWER from each, at most LIMIT
// in all. In the order of HOSTS.
[[nodiscard]] std::vector<HostAnswer> ask_hosts(Transport& transport,
                                                const std::vector<HostAddress>& hosts,
                                                const Frame& question, FrameKind answer,
                                                std::chrono::milliseconds limit);

}  // namespace dslaunch::launch

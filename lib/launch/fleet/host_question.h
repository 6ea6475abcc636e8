// Asks the agents of several hosts questions, and runs one program on all of them. Data path:
// `stop`, `ps --devices`, `hosts check`, `exec` -> [here] -> fleet. One thread: the caller's.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/agent/device_report.h"
#include "launch/agent/machine_facts.h"
#include "launch/fleet/fleet.h"

namespace dslaunch::launch {

// A frame to send to each agent, and the kind of frame that answers it.
struct HostQuestion {
    FrameKind kind = FrameKind::kPing;
    std::string payload;
    FrameKind answer_kind = FrameKind::kPong;
    std::chrono::milliseconds connect_max{30'000};
    std::chrono::milliseconds answer_max{30'000};  // counted from the last host's greeting
};

// The answer of one host.
struct HostAnswer {
    std::string host;
    std::optional<std::string> payload;
    std::string error;  // the reason why there is no payload
};

// Starts agents on HOSTS over TRANSPORT, asks each agent QUESTION as soon as the agent has said
// hello, and ends all agents. A host that fails does not delay the others. SIGNAL_FD: as in Fleet;
// after a request to end, hosts that have not answered get an error.
[[nodiscard]] std::vector<HostAnswer> ask_hosts(const std::vector<HostAddress>& hosts,
                                                Transport& transport, int signal_fd,
                                                const HostQuestion& question);

// The result of check_hosts() for one host.
struct HostState {
    std::vector<std::string> faults;            // empty: the host is good
    std::chrono::milliseconds answer_time{-1};  // from the start until its hello; -1: none came
    bool same_binary = false;
    std::optional<NodeReport> report;
    ClockOffset clock;
    DeviceUseReport devices;  // its GPUs, and who uses them
};

// The questions of check_hosts() to every host.
struct HostQuestions {
    std::string directory;             // the folder whose free space is asked for
    bool directory_is_needed = false;  // true: a host without it is bad
    std::string own_hash;              // SHA-256 of this program; empty: not compared
};

// Asks every host whose agent is running for a report: all hosts at once, and each host three
// times. The fastest of the three answers is used to compare the host's clock. Then asks for the
// GPUs; a driver may take seconds to answer. REQUIRES: fleet.connect() was called with
// want_binary_hash, unless own_hash is empty.
[[nodiscard]] std::vector<HostState> check_hosts(Fleet& fleet, const HostQuestions& questions);

// A program to run on every host.
struct ExecRequest {
    std::vector<std::string> command;  // not empty
    EnvironmentRules environment;
    std::string working_directory;                      // empty for the folder in which the agent
                                                        // starts
    std::optional<std::chrono::milliseconds> time_max;  // for the program; nothing: no limit
    // Receives lines as they arrive, each with its newline. If it is not set, ExecResult::output
    // collects them.
    std::function<void(size_t host, OutputStream stream, std::string_view lines)> on_lines;
    // Called like FleetListener::pause(). If it is not set, nothing is done before each wait.
    std::function<std::optional<std::chrono::milliseconds>(std::chrono::milliseconds left)> pause;
    int64_t output_bytes_max = 16 << 20;  // limit of the output that is kept for one host
};

// The result of the program on one host.
struct ExecResult {
    bool ended = false;  // true if the program ended by itself
    int exit_status = 0;
    int signal_number = 0;
    std::string error;   // why it never ran, or did not end by itself; else empty
    int error_code = 0;  // exit code of `error`
    std::string output;  // both streams, in the order in which they came
    bool output_was_cut = false;

    // Returns exit_status, 128+n for a signal, or error_code.
    [[nodiscard]] int code() const;
};

// Runs the program on every host whose agent is running, and waits for all of them. A host's error
// has code 67 if its agent is not running or was lost, 69 if the time was over, 76 if Ctrl-C ended
// the program. fleet.stop() ends the processes that the programs leave.
[[nodiscard]] std::vector<ExecResult> exec_on(Fleet& fleet, const ExecRequest& request);

}  // namespace dslaunch::launch

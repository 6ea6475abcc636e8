// Asks the agents of several hosts questions, and runs one program on all of them. Data path:
// `stop`, `ps --devices`, `hosts check`, `exec` -> here -> fleet. One thread: the caller's.
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
// host that fails does not hold up the others. SIGNAL_FD as Fleet's: after a wish to end, hosts
// that have not answered have an error.
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

// Asks every host that serves, all at once and three times each; the fastest answer gives the
// clock. Then asks for GPUs, which may take a driver seconds. REQUIRES: fleet.connect() with
// want_binary_hash unless own_hash is empty.
[[nodiscard]] std::vector<HostState> check_hosts(Fleet& fleet, const HostQuestions& questions);

struct ExecRequest {
    std::vector<std::string> command;  // not empty
    EnvironmentRules environment;
    std::string working_directory;                      // empty: where the agent starts
    std::optional<std::chrono::milliseconds> time_max;  // for the program; nothing: no limit
    // Gets lines as they come, each with its newline; not given: ExecResult::output keeps them.
    std::function<void(size_t host, OutputStream stream, std::string_view lines)> on_lines;
    // Does what FleetListener::pause() says; not given: nothing is done before each wait.
    std::function<std::optional<std::chrono::milliseconds>(std::chrono::milliseconds left)> pause;
    int64_t output_bytes_max = 16 << 20;  // kept of one host
};

struct ExecResult {
    bool ended = false;  // by itself, with the two below
    int exit_status = 0;
    int signal_number = 0;
    std::string error;   // not empty: it never ran, or did not end by itself, in words
    int error_code = 0;  // exit code of `error`
    std::string output;  // both streams, in the order in which they came
    bool output_was_cut = false;

    // Returns exit_status, 128+n for a signal, or error_code.
    [[nodiscard]] int code() const;
};

// Runs the program on every host that serves and waits for all of them. The error of a host that
// does not serve, or is lost, has code 67; of one out of time, 69; of one that Ctrl-C ended, 76.
// fleet.stop() ends what the programs leave running.
[[nodiscard]] std::vector<ExecResult> exec_on(Fleet& fleet, const ExecRequest& request);

}  // namespace dslaunch::launch

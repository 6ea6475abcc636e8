// One program runs on every host of a Fleet: what each said and how it ended. Below `dslaunch
// exec`.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/fleet/fleet.h"

namespace dslaunch::launch {

struct ExecRequest {
    std::vector<std::string> command;  // not empty
    EnvironmentRules environment;
    std::string working_directory;                      // empty: where the agent starts
    std::optional<std::chrono::milliseconds> time_max;  // for the program; nothing: no limit
    // Lines as they come, each with its newline; not given: they are kept in ExecResult::output.
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

    // exit_status, 128+n for a signal, error_code.
    [[nodiscard]] int code() const;
};

// Runs the program on every host that serves and waits for all of them; a host that does not, or is
// lost, has an error with code 67, one out of time 69, one that Ctrl-C ended 76. What the programs
// leave behind ends with fleet.stop().
[[nodiscard]] std::vector<ExecResult> exec_on(Fleet& fleet, const ExecRequest& request);

}  // namespace dslaunch::launch

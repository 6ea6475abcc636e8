// `dslaunch agent …`: parses its arguments and connects it to its launcher. An agent with --stdio
// was started by the launcher, as a child or over ssh; an agent with --join calls the launcher.
//
//     agent --stdio
//     agent --join HOST:PORT|unix:PATH [--node N | --node-name NAME | --node-from VARIABLE |
//           --node-name-from VARIABLE] [--token-file FILE] [--connect-timeout SECONDS]
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "launch/agent/agent_worker.h"
#include "launch/transport/join/join_handshake.h"

namespace dslaunch::launch {

// The parsed command line of `dslaunch agent`.
struct AgentArguments {
    bool help = false;  // true: the help was printed on stdout
    bool stdio = false;
    bool same_machine = false;  // the launcher or the relay at the other end is on this machine
    WorkerStdin worker_stdin;
    std::string token_file;  // empty if DSLAUNCH_TOKEN contains the token
    JoinRequest join;        // used without --stdio; does not contain the token yet
};

// Parses ARGUMENTS (without `agent`). VARIABLE returns the value of an environment variable. It is
// used for --node-from and --node-name-from, which name a scheduler's variable
// (OMPI_COMM_WORLD_RANK, SLURMD_NODENAME). Throws Error{kUsage}.
[[nodiscard]] AgentArguments parse_agent_arguments(
    std::span<const std::string> arguments,
    const std::function<std::optional<std::string>(const std::string&)>& variable);

// Serves one launcher until its job is over. Returns the exit code of the process. REQUIRES: the
// process has no other thread yet.
[[nodiscard]] int run_agent_command(std::span<const std::string> arguments);

// Joins the launcher that REQUEST names and serves it. Joins it again for each further attempt.
[[nodiscard]] int run_joining_agent(JoinRequest request, WorkerStdin worker_stdin = {});

}  // namespace dslaunch::launch

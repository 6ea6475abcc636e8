// `dslaunch agent …`: its arguments, and how it comes to its launcher: as its child or over ssh
// with --stdio, or by calling back with --join.
//
//     agent --stdio
//     agent --join HOST:PORT|unix:PATH [--node N | --node-name NAME | --node-from VARIABLE |
//           --node-name-from VARIABLE] [--token-file FILE] [--connect-timeout SECONDS]
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "launch/agent/agent_worker.h"
#include "launch/transport/join/join_client.h"

namespace dslaunch::launch {

struct AgentArguments {
    bool help = false;  // true: the help was printed on stdout
    bool stdio = false;
    bool same_machine = false;  // the launcher or the relay at the other end is on this machine
    WorkerStdin worker_stdin;
    std::string token_file;  // empty: DSLAUNCH_TOKEN
    JoinRequest join;        // without stdio; the token is not yet in it
};

// ARGUMENTS without `agent`. VARIABLE gives the environment: --node-from and --node-name-from name
// what a scheduler sets on each node (OMPI_COMM_WORLD_RANK, SLURMD_NODENAME). Throws Error{kUsage}.
[[nodiscard]] AgentArguments parse_agent_arguments(
    std::span<const std::string> arguments,
    const std::function<std::optional<std::string>(const std::string&)>& variable);

// Serves one launcher until its job is over. The result is the exit code of the process. REQUIRES:
// no other thread yet.
[[nodiscard]] int run_agent_command(std::span<const std::string> arguments);

// Joins as REQUEST says and serves that launcher, again for each further attempt of its job.
[[nodiscard]] int run_joining_agent(JoinRequest request, WorkerStdin worker_stdin = {});

}  // namespace dslaunch::launch

// The facts about this machine that a job depends on. Data path: this machine -> [here] -> sources
// of hosts, job. One thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/hosts/hostfile.h"
#include "launch/network/interfaces.h"
#include "launch/plan/job_spec.h"

namespace dslaunch::launcher {

// Hosts whose agents connect to this machine by themselves, found without any option.
struct JoiningHosts {
    std::vector<launch::Host> hosts;  // empty: none; the first is this machine
    std::string listen;               // HOST:PORT
};

// The facts about this machine that a job depends on; tests make their own.
struct Machine {
    std::string host_name;
    int gpu_count = 0;             // /dev/nvidia[0-9]*
    std::string directory;         // the current one, absolute
    std::string binary_directory;  // folder of dslaunch and dsworker, absolute
    std::string default_hostfile;  // deepspeed's /job/hostfile; empty: there is none
    launch::EnvironmentList environment;
    JoiningHosts joining;  // hosts under mpirun
    // Returns true if HOST is a name or address of this machine. May ask DNS.
    std::function<bool(const std::string& host)> has_address = launch::is_own_address;

    [[nodiscard]] static Machine this_one();
    [[nodiscard]] std::optional<std::string> variable(std::string_view name) const;
    // Returns the path of this shell's Python: of VIRTUAL_ENV, of CONDA_PREFIX, the first python3
    // in PATH; "python3" when there is none here.
    [[nodiscard]] std::string python() const;
};

}  // namespace dslaunch::launcher

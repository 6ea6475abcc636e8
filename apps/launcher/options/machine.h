// The facts about this machine that a job depends on. Data path: this machine -> [here] -> sources
// of hosts, job. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/hosts/hostfile.h"
#include "launch/network/interfaces.h"
#include "launch/plan/job_spec.h"

namespace dslaunch::launcher {

// Hosts that no option has named. Their agents connect to this machine by themselves.
struct JoiningHosts {
    std::vector<launch::Host> hosts;  // empty: none; the first is this machine
    std::string listen;               // HOST:PORT
};

// The facts about this machine that a job depends on. Tests fill in different values.
struct Machine {
    std::string host_name;
    int gpu_count = 0;             // /dev/nvidia[0-9]*
    std::string directory;         // the current folder, absolute
    std::string binary_directory;  // folder of dslaunch and dsworker, absolute
    std::string default_hostfile;  // deepspeed's /job/hostfile; empty: there is none
    launch::EnvironmentList environment;
    JoiningHosts joining;  // hosts under mpirun
    // Returns true if HOST is a name or an address of this machine. May ask DNS.
    std::function<bool(const std::string& host)> has_address = launch::is_own_address;

    // Returns the facts about the machine that this process runs on. Throws Error{kSetup} if the
    // current folder or the path of this program cannot be read.
    [[nodiscard]] static Machine this_one();
    // Returns the value of an environment variable; nullopt if it is not set.
    [[nodiscard]] std::optional<std::string> variable(std::string_view name) const;
    // Returns the number that an environment variable has; -1 if it is not set or is not a number.
    [[nodiscard]] int64_t number(std::string_view name) const;
    // Returns the path of the Python that this shell would use: from VIRTUAL_ENV, from
    // CONDA_PREFIX, or the first python3 in PATH; "python3" if there is none.
    [[nodiscard]] std::string python() const;
};

// Returns PATH as an absolute path without `.` and `..`; a relative PATH begins in DIRECTORY, which
// is absolute.
[[nodiscard]] std::string resolved_path(const std::string& path, const std::string& directory);

}  // namespace dslaunch::launcher

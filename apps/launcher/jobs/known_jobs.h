// The records of jobs in a user's state folder (launch/jobs/job_record.h), read back for `ps`,
// `logs`, `stop` and `report`. Damaged or half removed records are passed over. No threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/process/process_tree.h"
#include "launch/transport/transport.h"

namespace dslaunch::launcher {

struct KnownJob {
    std::string id;
    std::string folder;
    std::string target, working_directory, output;  // output: its folder; empty: none
    std::string transport, ssh_config;              // how its hosts are reached
    std::string machine;                            // host name of its launcher
    launch::ProcessName launcher;
    bool is_here = false;  // its launcher runs, or ran, on this machine
    bool lives = false;    // not ended, and its launcher lives, here
    // starting, running, restarting, ended; lost: its launcher was killed; away: on another machine
    std::string state;
    std::optional<int64_t> exit_code, step;
    std::optional<double> loss;
    int64_t started_at_s = 0, ended_at_s = 0;  // Unix time; 0: not ended
    int64_t started_at_ns = 0;                 // the same moment
    int64_t world_size = 0, restarts = 0, max_restarts = 0;
    std::chrono::milliseconds grace{0};
    std::vector<launch::HostAddress> hosts;
    std::vector<int64_t> host_ranks;  // of the newest attempt; 0: an earlier one used that host

    [[nodiscard]] int64_t hosts_in_use() const;
};

inline constexpr size_t kKeptJobs = 100;

// The state folder of the user who runs this. Throws Error{kSetup} when there is none.
[[nodiscard]] std::string own_state_directory();

// The newest start first.
[[nodiscard]] std::vector<KnownJob> read_jobs(const std::string& state_directory);

// The job whose id is TEXT or, if no other one's does, begins with it. Throws Error{kUsage}: TEXT
// cannot be an id, no such job, several.
[[nodiscard]] KnownJob find_job(const std::string& state_directory, const std::string& text);

// Removes the records of jobs that are over, but for the newest kKeptJobs. Never throws.
void remove_old_jobs(const std::string& state_directory);

// "3 s", "12 min", "5 h 2 min", "3 d 4 h".
[[nodiscard]] std::string age_text(int64_t seconds);

}  // namespace dslaunch::launcher

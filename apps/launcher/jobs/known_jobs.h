// Reads the records of jobs from a user's state folder (launch/jobs/job_record.h) for `ps`, `logs`,
// `stop` and `report`. Skips records that are damaged or only partly removed. No threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/plan/job_spec.h"
#include "launch/process/process_tree.h"
#include "launch/transport/transport.h"

namespace dslaunch::launcher {

// A job as its record describes it.
struct KnownJob {
    std::string id;
    std::string launch_id;  // see JobSpec
    std::string folder;
    std::string target, working_directory, output;  // output: the --output folder; empty: none
    std::string transport, ssh_config;              // transport to its hosts
    std::string machine;                            // host name of the launcher's machine
    launch::ProcessName launcher;
    bool is_here = false;  // true: its launcher runs, or ran, on this machine
    bool lives = false;    // true: not ended, and its launcher lives on this machine
    // The state is starting, running, restarting, ended, lost (the launcher was killed) or away
    // (the launcher is on another machine).
    std::string state;
    std::optional<int64_t> exit_code, step;
    std::optional<double> loss;
    int64_t started_at_s = 0, ended_at_s = 0;  // Unix time; 0: not ended
    int64_t started_at_ns = 0;                 // the start, in ns of Unix time
    int64_t world_size = 0, restarts = 0, max_restarts = 0;
    std::chrono::milliseconds grace{0};
    std::vector<launch::HostAddress> hosts;
    std::vector<int64_t> host_ranks;  // by host, its ranks in the newest attempt; 0: only an
                                      // earlier attempt used the host

    // Returns the number of hosts that the newest attempt uses.
    [[nodiscard]] int64_t hosts_in_use() const;
};

inline constexpr size_t kKeptJobs = 100;

// Returns the state folder of the user who runs this process. Throws Error{kSetup} if there is
// none.
[[nodiscard]] std::string own_state_directory();

// Returns all jobs that have a record, the last started first.
[[nodiscard]] std::vector<KnownJob> read_jobs(const std::string& state_directory);

// Returns the job with the id TEXT. If there is none, tries TEXT as the path of an output folder
// (job_of_output()), and then as the beginning of an id. Throws Error{kUsage} if no job matches, or
// if several ids begin with TEXT.
[[nodiscard]] KnownJob find_job(const std::string& state_directory, const std::string& text);

// Throws Error{kInput} if PATH does not exist, but was the --output folder of a recorded job. The
// message says where the folder is now, if it is beside PATH or in the current folder.
void refuse_moved_output(const std::string& path);

// Removes the records of ended jobs, except the newest kKeptJobs. Never throws.
void remove_old_jobs(const std::string& state_directory);

// Returns the job whose --output is the folder PATH or contains the file PATH; null if there is
// none. Of several jobs, prefers the newest running job, then the newest job. The folder may have
// been removed.
[[nodiscard]] const KnownJob* job_of_output(const std::vector<KnownJob>& jobs,
                                            const std::string& path);

// Throws Error{kCheckpoint} if a training is running in SPEC's --output folder, naming its job.
// Called before the new job leaves a record, which would hide the running job's record.
void refuse_running_output(const launch::JobSpec& spec);

// Returns the job's state as text: "running", "ok", "interrupted", "failed (66 input)", "lost
// (launcher killed)".
[[nodiscard]] std::string state_text(const KnownJob& job);

// Returns a duration as text: "3 s", "12 min", "5 h 2 min", "3 d 4 h".
[[nodiscard]] std::string age_text(int64_t seconds);

}  // namespace dslaunch::launcher

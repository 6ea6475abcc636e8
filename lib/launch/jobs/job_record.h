// The record of a job in its user's state folder, where `dslaunch ps`, `logs`, `stop` and `report`
// find it: STATE/jobs/ID/ (0700) with job.json, progress.json (the newest line of metrics),
// ranks.json (how far each rank is) and job.log. It contains no environment values and no arguments
// of the target. If a record cannot be written, one warning says so, and the job continues. Files
// are replaced by rename, so that a reader sees a whole file. A separate thread writes the files
// (files/file_writer.h). If the home directory does not answer, only a change of the job's state is
// delayed, by kBrief. One thread uses an object.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launch/files/file_writer.h"
#include "launch/plan/job_spec.h"

namespace dslaunch::launch {

// The size at which job.log is renamed to job.log.1: the newest 8 to 16 MiB are kept.
inline constexpr int64_t kJobLogBytesMax = int64_t{8} << 20;

// Returns ${XDG_STATE_HOME:-HOME/.local/state}/dslaunch; empty if neither is an absolute path.
[[nodiscard]] std::string state_directory(const EnvironmentList& environment);

// Returns true if TEXT may be a job's id, which is also the name of its folder: letters, digits,
// `.`, `_`, `-`, at most 128 characters, and the first is not a dot.
[[nodiscard]] bool is_job_id(std::string_view text);

// Returns this machine's name for records; empty when it has no name.
[[nodiscard]] std::string recorded_machine();

// Returns /proc/sys/kernel/random/boot_id, the id of this boot. Process ids and start times can be
// compared only within one boot.
[[nodiscard]] std::string boot_id();

// The record of one job, over all its attempts.
class JobRecord {
  public:
    // If SPEC.state_directory is empty, nothing is recorded and a warning says so. WARN prints one
    // line.
    JobRecord(const JobSpec& spec, std::function<void(std::string_view)> warn);
    JobRecord(const JobRecord&) = delete;
    JobRecord& operator=(const JobRecord&) = delete;
    // Waits as settle() does.
    ~JobRecord();

    // Begins an attempt with these nodes and ranks.
    void begin_attempt(const JobSpec& spec, int restarts);
    // Record the state of the job: waiting before restart number RESTARTS, or ended with EXIT_CODE.
    void wait_for_restart(int restarts);
    void end(int exit_code);
    // Takes a line of metrics.jsonl. Writes at most one line a second; end() writes the newest
    // line.
    void metrics(std::string_view line);
    // Returns when the job began, in seconds of Unix time.
    [[nodiscard]] int64_t started_at_s() const { return started_at_ns_ / 1'000'000'000; }
    // Returns true if the state of the ranks was not recorded within the last second.
    [[nodiscard]] bool wants_ranks() const;
    // Records JSON, the state of the ranks (supervise/rank_record.h), in ranks.json.
    void ranks(std::string json);
    // Records LINES, whole lines of RANK.
    void lines(int rank, std::string_view host, std::string_view lines);
    // Records TEXT, a message of the launcher itself without a newline at its end.
    void note(std::string_view text);
    // Warns of writes that failed since the last call.
    void tell_news();
    // Waits until everything is written, or until nothing was written for kBrief.
    void settle();

    static constexpr std::chrono::milliseconds kBrief{2'000};

  private:
    struct Folder;
    struct UsedHost {
        std::string name, user, address;
        int port = 0;
        int64_t ranks = 0;  // ranks of the newest attempt; 0: only an earlier attempt used the host
    };
    void open_folder();
    void write_job();
    void write_progress();
    // Replaces FILE in the folder. Does not sync it, since a power failure loses only a record.
    void replace(const std::string& file, std::string content);
    void append(std::string text);

    const JobSpec& spec_;
    std::function<void(std::string_view)> warn_;
    std::shared_ptr<Folder> folder_;  // null: nothing is recorded
    std::unique_ptr<FileWriter> writer_;
    std::vector<UsedHost> hosts_;
    std::string state_ = "starting";  // running, restarting, ended
    int64_t started_at_ns_ = 0;       // Unix time
    int64_t ended_at_s_ = 0;
    int world_size_ = 0;
    int restarts_ = 0;
    int exit_code_ = -1;
    std::string metrics_line_;
    bool are_metrics_written_ = true;
    std::chrono::steady_clock::time_point metrics_at_{}, ranks_at_{};
};

}  // namespace dslaunch::launch

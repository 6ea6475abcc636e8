// The folder for the results of a training job that has no --output: runs/NAME-DATE below the
// folder in which dslaunch was started. The job's launcher chooses the folder before the plan is
// made, so that hosts, restarts and records treat it like any --output. A folder that a refused job
// has made is removed, even if --output names it. Data path: RunOptions -> [here] -> build_job().
// One thread.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/options/run_options.h"

namespace dslaunch::launcher {

// Returns true if OPTIONS describe a training job that names no output folder and does not say
// --no-output.
[[nodiscard]] bool needs_own_output(const RunOptions& options);

// Returns NAME-DATE for a run of the model TARGET that starts at SECONDS of Unix time. A relative
// TARGET begins in DIRECTORY. NAME consists of the letters, digits, `.`, `_` and `-` of the file's
// or folder's name; DATE is the local time, so that later runs of the same name sort after earlier
// ones.
[[nodiscard]] std::string own_output_name(const std::string& target, const std::string& directory,
                                          std::time_t seconds);

// Owns a job's output folder from the job's start to its end.
class OwnOutput {
  public:
    // If needs_own_output(), makes the folder below DIRECTORY and writes its path to
    // OPTIONS.output; no two jobs get the same folder. Makes nothing with --dry-run. Throws
    // Error{kDisk} if the folder cannot be made; throws Error{kUsage}, naming the newest run, if
    // --resume does not say which run to continue.
    OwnOutput(RunOptions& options, const std::string& directory);
    OwnOutput(const OwnOutput&) = delete;
    OwnOutput& operator=(const OwnOutput&) = delete;
    // Removes the job's files and the folders that the job made, if it trained no step and its
    // message explained why. Leaves files that another job may have written in the meantime. Keeps
    // the logs of a rank that crashed or hung. After Ctrl-C, also keeps a folder that --output
    // names.
    ~OwnOutput();

    // Returns true if this job chose its output folder itself.
    [[nodiscard]] bool is_made() const { return !folder_.empty() && !is_named_; }
    // Sets the id that the job has in its run.json. Without an id, no file is removed.
    void set_job(std::string id) { job_ = std::move(id); }
    // Records that the job ended with CODE.
    void end(int code) { code_ = code; }

  private:
    void remove_files() const;

    std::string folder_;             // absolute; empty: the job makes no folder
    bool is_named_ = false;          // --output names it
    std::vector<std::string> made_;  // the folders that this job made, the outermost first
    std::string job_;                // see set_job()
    std::optional<int> code_;
};

}  // namespace dslaunch::launcher

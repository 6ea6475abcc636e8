// The folder for the results of a training job without --output: runs/NAME-DATE below the folder
// that dslaunch was started in. The job's only launcher chooses it before the plan, so that hosts,
// restarts and records know it as any --output. Data path: RunOptions -> [here] -> build_job(). One
// thread.
#pragma once

#include <ctime>
#include <optional>
#include <string>

#include "launcher/run/run_options.h"

namespace dslaunch::launcher {

// Returns true if OPTIONS are of a training job that names no folder, without --no-output.
[[nodiscard]] bool needs_own_output(const RunOptions& options);

// Returns NAME-DATE for a model named TARGET, a path below DIRECTORY, and a start at SECONDS of
// Unix time: letters, digits, `.`, `_` and `-` of the file's or folder's name, and the local time,
// so that later runs of a name sort after earlier ones.
[[nodiscard]] std::string own_output_name(const std::string& target, const std::string& directory,
                                          std::time_t seconds);

// Holds the folder of a job from its start to its end.
class OwnOutput {
  public:
    // Makes the folder below DIRECTORY and writes it to OPTIONS.output, if needs_own_output(); two
    // jobs never get one folder. With --dry-run nothing is made. Throws Error{kDisk} if it cannot
    // be made, Error{kUsage} if --resume does not say which run goes on, with the newest one.
    OwnOutput(RunOptions& options, const std::string& directory);
    OwnOutput(const OwnOutput&) = delete;
    OwnOutput& operator=(const OwnOutput&) = delete;
    // Removes the job's files if it trained no step: its message told why. Logs of a rank that
    // crashed or hung stay.
    ~OwnOutput();

    // Returns true if this job has a folder that it named itself.
    [[nodiscard]] bool is_made() const { return !folder_.empty(); }
    // Records that the job ended with CODE.
    void end(int code) { code_ = code; }

  private:
    std::string folder_;      // absolute; empty: nothing was made
    bool made_runs_ = false;  // the folder above was missing
    std::optional<int> code_;
};

}  // namespace dslaunch::launcher

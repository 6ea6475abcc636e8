// Where a rank's results go: through its agent to the launcher, or, started by hand, to files under
// --output. The reporter also hears the one thing that comes the other way: save and end. Threads:
// any; one line is one frame or one write.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/fd.h"

namespace dslaunch::launch {
struct Heartbeat;
}  // namespace dslaunch::launch

namespace dslaunch::runtime {

class Reporter {
  public:
    virtual ~Reporter() = default;
    // One line of metrics.jsonl, without newline.
    virtual void metrics(std::string_view line) = 0;
    // The JSON object that becomes run.json's "run" member; once, by rank 0.
    virtual void run_info(std::string_view json) = 0;
    // One line for the terminal.
    virtual void progress(std::string_view line) = 0;
    // The first step begins.
    virtual void ready() = 0;
    // Where this rank is; each second.
    virtual void heartbeat(const launch::Heartbeat& heartbeat) = 0;
    // One record of `dslaunch health` (health/health_record.h).
    virtual void health(std::string_view record) = 0;
    // Why this rank ends; the last call.
    virtual void failure(ExitCode code, std::string_view message) = 0;
    // The launcher asked to save and end.
    [[nodiscard]] virtual bool asked_to_end() const = 0;
};

// Frames on CONTROL_FD, which it takes over. A thread listens for frames from the agent.
[[nodiscard]] std::unique_ptr<Reporter> make_control_reporter(int control_fd);

// Without an agent: metrics and run.json under OUTPUT (empty: nowhere), progress as log lines.
// SIGTERM ends the process. Throws Error{kDisk} when OUTPUT cannot be written.
[[nodiscard]] std::unique_ptr<Reporter> make_file_reporter(const std::string& output);

}  // namespace dslaunch::runtime

// The reporter sends a rank's results through its agent to the launcher or, if started by hand, to
// files under --output. It also hears the one message in the other direction: save and end.
// Threads: any; one line is one frame or one write.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "base/error.h"

namespace dslaunch::launch {
struct Heartbeat;
}  // namespace dslaunch::launch

namespace dslaunch::runtime {

class Reporter {
  public:
    virtual ~Reporter() = default;
    // Takes one line of metrics.jsonl, without newline.
    virtual void metrics(std::string_view line) = 0;
    // Takes the JSON object that becomes run.json's "run" member. Rank 0 calls it once.
    virtual void run_info(std::string_view json) = 0;
    // Takes one line for the terminal.
    virtual void progress(std::string_view line) = 0;
    // Says that the first step begins.
    virtual void ready() = 0;
    // Says where this rank is, each second.
    virtual void heartbeat(const launch::Heartbeat& heartbeat) = 0;
    // Takes one record of `dslaunch health` (health/health_record.h).
    virtual void health(std::string_view record) = 0;
    // Says why this rank ends. It is the last call.
    virtual void failure(ExitCode code, std::string_view message) = 0;
    // Returns true if the launcher asked to save and end.
    [[nodiscard]] virtual bool asked_to_end() const = 0;
};

// Sends frames on CONTROL_FD, which it takes over. A thread listens for frames from the agent.
[[nodiscard]] std::unique_ptr<Reporter> make_control_reporter(int control_fd);

// Works without an agent: metrics and run.json go under OUTPUT (empty: nowhere), progress to log
// lines. SIGTERM ends the process. Throws Error{kDisk} if OUTPUT cannot be written.
[[nodiscard]] std::unique_ptr<Reporter> make_file_reporter(const std::string& output);

// Sends WHERE() to REPORTER at once and then each INTERVAL until the result ends, which waits for a
// heartbeat under way. The thread uses no collective, so it speaks while every lane is stuck, and
// can name a rank for which others wait. WHERE must not block. Both must outlive the result.
[[nodiscard]] std::jthread send_heartbeats(Reporter& reporter, Duration interval,
                                           std::function<launch::Heartbeat()> where);

}  // namespace dslaunch::runtime

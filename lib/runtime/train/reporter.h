// The reporter sends a rank's results through its agent to the launcher or, if the worker was
// started by hand, to files under --output. It also receives the only message in the other
// direction, the request to save and end. Any thread may use it, since each line is one frame or
// one write.
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

// Sends results; see the top of this file.
class Reporter {
  public:
    virtual ~Reporter() = default;
    // Sends one line of metrics.jsonl, without newline.
    virtual void metrics(std::string_view line) = 0;
    // Sends the JSON object that becomes the member "run" of run.json. Rank 0 calls it once.
    virtual void run_info(std::string_view json) = 0;
    // Sends the JSON object that becomes the member "result" of run.json. Rank 0 calls it once,
    // after training.
    virtual void run_result(std::string_view json) = 0;
    // Sends one line for the terminal.
    virtual void progress(std::string_view line) = 0;
    // Reports that the first step begins: from now on the run may replace an earlier run's files.
    virtual void ready() = 0;
    // Reports this rank's position in its work, once a second.
    virtual void heartbeat(const launch::Heartbeat& heartbeat) = 0;
    // Sends one record of `dslaunch health` (health/health_record.h).
    virtual void health(std::string_view record) = 0;
    // Reports why this rank ends. It is the last call.
    virtual void failure(ExitCode code, std::string_view message) = 0;
    // Returns true if the launcher has requested to save and end.
    [[nodiscard]] virtual bool asked_to_end() const = 0;
};

// Returns a reporter that sends frames on CONTROL_FD, which it owns from then on. A thread listens
// for frames from the agent.
[[nodiscard]] std::unique_ptr<Reporter> make_control_reporter(int control_fd);

// Returns a reporter without an agent: it writes metrics and run.json under OUTPUT, and progress to
// log lines. If OUTPUT is empty, it writes no files. SIGTERM ends the process. Throws Error{kDisk}
// if OUTPUT cannot be written.
[[nodiscard]] std::unique_ptr<Reporter> make_file_reporter(const std::string& output);

// Starts a thread that sends WHERE() to REPORTER at once and then every INTERVAL. The result's
// destructor ends the thread; a heartbeat that the thread has begun to send is completed first. The
// thread uses no collectives, so it works even while every lane is stuck. Heartbeats then show the
// rank for which the others wait. WHERE must not block. REPORTER and the objects that WHERE uses
// must outlive the result.
[[nodiscard]] std::jthread send_heartbeats(Reporter& reporter, Duration interval,
                                           std::function<launch::Heartbeat()> where);

}  // namespace dslaunch::runtime

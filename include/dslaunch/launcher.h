// Jobs started from a program: this runs the program dslaunch as a child, so hosts, ssh, restarts
// and Slurm work as on the command line. No LibTorch. Link with dslaunch::launcher. Guide:
// docs/guide/engine.md.
//
// Functions throw dslaunch::Error and nothing else. They install no signal handler and change no
// environment. Different jobs may be used by different threads.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dslaunch/error.h"

namespace dslaunch {

// A job to start.
struct JobRequest {
    std::string target;                  // a model (.pt, .pt2, folder), a .py, or a program
    std::vector<std::string> arguments;  // of TARGET if it is a program
    std::vector<std::string> options;    // of dslaunch, such as {"--hostfile", "hosts"}
    // Added to the environment, or replacing what it has.
    std::vector<std::pair<std::string, std::string>> environment;
    // The files that get the job's output, appended; empty: this process's stdout and stderr.
    std::string stdout_file;
    std::string stderr_file;
    // The program dslaunch. Empty: the variable DSLAUNCH, the bin/ beside the folder of this
    // library, or the PATH.
    std::string program;
};

// A job that is running, or has ended. It is in a process group of its own, so Ctrl-C on a terminal
// does not reach it: call stop(). If this process is killed, the job goes on (`dslaunch ps`).
class Job {
  public:
    // Starts REQUEST and returns at once. Throws kUsage if TARGET is empty, kSetup if the program
    // dslaunch is not found or cannot be started, kDisk if a file cannot be opened.
    [[nodiscard]] static Job start(const JobRequest& request);

    Job(Job&&) noexcept;
    Job& operator=(Job&&) = delete;
    // Ends a job that still runs, at once. Waits for its launcher only: agents end the ranks right
    // after.
    ~Job();

    // Returns the exit code of the job: one of ExitCode, or a program's own (128 + n for a signal).
    // Waits for the end.
    int wait();
    // Waits as wait() does, but for at most LIMIT. Returns nullopt if the job still runs.
    [[nodiscard]] std::optional<int> wait_for(std::chrono::milliseconds limit);
    // Asks the job to save and end, as Ctrl-C does. Does not wait.
    void stop();
    // Returns the process of the launcher, for a process monitor. Do not wait for it.
    [[nodiscard]] int process() const;

  private:
    class Process;
    explicit Job(std::unique_ptr<Process> process);
    std::unique_ptr<Process> process_;
};

}  // namespace dslaunch

// Starts jobs from a program. The library runs the program dslaunch as a child process, so hosts,
// ssh, restarts and Slurm work as on the command line. It needs no LibTorch. Link with
// dslaunch::launcher. Guide: docs/guide/engine.md.
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
    std::vector<std::string> arguments;  // arguments of TARGET if it is a program
    std::vector<std::string> options;    // options of dslaunch, e.g. {"--hostfile", "hosts"}
    // Environment variables of the job: they are added, or replace variables of the same name.
    std::vector<std::pair<std::string, std::string>> environment;
    // The files to which output is appended; empty: the job uses this process's stdout and stderr.
    std::string stdout_file;
    std::string stderr_file;
    // The path of the program dslaunch. If it is empty, the library looks in the variable DSLAUNCH,
    // in bin/ beside the library's folder, in that folder itself, and in the PATH, in this order.
    std::string program;
};

// A job that is running, or has ended. It is in a process group of its own, so Ctrl-C on a terminal
// does not reach it: call stop(). If this process is killed, the job continues to run (`dslaunch
// ps` lists it).
class Job {
  public:
    // Starts REQUEST and returns at once. Throws kUsage if TARGET is empty, kSetup if the program
    // dslaunch is not found or cannot be started, kDisk if a file cannot be opened.
    [[nodiscard]] static Job start(const JobRequest& request);

    Job(Job&&) noexcept;
    Job& operator=(Job&&) = delete;
    // Kills the launcher of a job that still runs, and waits until the launcher has ended. The
    // agents then end the ranks.
    ~Job();

    // Waits until the job ends, and returns its exit code: one of ExitCode, or the exit code of the
    // job's program (128 + n for signal n).
    int wait();
    // Waits as wait() does, but for at most LIMIT. Returns nullopt if the job still runs.
    [[nodiscard]] std::optional<int> wait_for(std::chrono::milliseconds limit);
    // Asks the job to save and end, as Ctrl-C does. Does not wait.
    void stop();
    // Returns the process ID of the launcher, for a process monitor. Do not call waitpid() on it.
    [[nodiscard]] int process() const;

  private:
    class Process;
    explicit Job(std::unique_ptr<Process> process);
    std::unique_ptr<Process> process_;
};

}  // namespace dslaunch

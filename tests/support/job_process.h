// A program under test as a child process: its output, its exit, and the processes that it made, by
// the ids that they recorded.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "launch/process/process_tree.h"
#include "support/catch.h"
#include "support/hang.h"
#include "support/places.h"
#include "support/temporary_folder.h"

namespace dslaunch::test {

using namespace launch;

// Returns the file FILE of PID in /proc, such as "cmdline"; empty if the process is gone or ends
// while the file is read.
constexpr size_t kProcessFileBytesMax = 4U << 20;
inline std::string process_file(pid_t pid, const std::string& file) {
    return text_or_empty("/proc/" + std::to_string(pid) + "/" + file, kProcessFileBytesMax);
}

// Returns the most memory that PID had so far, in KiB; 0 if the process is gone.
inline int64_t peak_memory_kib(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6));
    return 0;
}

// A child process whose output goes to files, so that the test need not read it while the process
// runs.
class JobProcess {
  public:
    JobProcess(const TemporaryFolder& folder, const std::vector<std::string>& command)
        : folder_(folder) {
        const int out = open_file("stdout");
        const int err = open_file("stderr");
        pid_ = ::fork();
        if (pid_ == 0) {
            ::dup2(out, 1);
            ::dup2(err, 2);
            std::vector<char*> argv;
            for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
            argv.push_back(nullptr);
            ::execvp(argv[0], argv.data());
            ::_exit(126);
        }
        ::close(out);
        ::close(err);
    }
    JobProcess(const JobProcess&) = delete;
    JobProcess& operator=(const JobProcess&) = delete;
    ~JobProcess() {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
        }
    }
    [[nodiscard]] pid_t pid() const { return pid_; }
    void signal(int number) const { ::kill(pid_, number); }
    // Returns the exit code, 128+n for signal n, or -1 if the process does not end in time.
    int wait(int limit_ms = kHangMs) {
        if (pid_ < 0) return code_;
        const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
        pollfd entry{process.get(), POLLIN, 0};
        REQUIRE(process.valid());
        if (::poll(&entry, 1, limit_ms) != 1) return -1;
        int status = 0;
        ::waitpid(pid_, &status, 0);
        pid_ = -1;
        code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        return code_;
    }
    [[nodiscard]] std::string out() const { return folder_.read("stdout"); }
    [[nodiscard]] std::string err() const { return folder_.read("stderr"); }

  private:
    int open_file(const std::string& name) const {
        return ::open((folder_.path() + "/" + name).c_str(),
                      O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    }
    const TemporaryFolder& folder_;
    pid_t pid_ = -1;
    int code_ = -1;  // the exit code, after a wait
};

// The end of a program: its exit code, as JobProcess::wait() returns it, and its output.
struct ProgramEnd {
    int code = -1;
    std::string out;
    std::string err;

    [[nodiscard]] bool says(const std::string& words) const {
        return out.find(words) != std::string::npos || err.find(words) != std::string::npos;
    }
};

// Runs COMMAND until it ends. Its output goes to files in FOLDER.
inline ProgramEnd run_program(const TemporaryFolder& folder,
                              const std::vector<std::string>& command) {
    JobProcess process(folder, command);
    const int code = process.wait();
    return {code, process.out(), process.err()};
}

inline ProgramEnd run_program(const std::vector<std::string>& command) {
    const TemporaryFolder folder;
    return run_program(folder, command);
}

// Runs the command line "dslaunch WORDS" until it ends.
inline ProgramEnd run_dslaunch(const TemporaryFolder& folder, std::vector<std::string> words) {
    words.insert(words.begin(), kDslaunch);
    return run_program(folder, words);
}

// Runs COMMAND, which must end with 0, and returns its stdout.
inline std::string run_well(const TemporaryFolder& folder,
                            const std::vector<std::string>& command) {
    const ProgramEnd ended = run_program(folder, command);
    std::string line;
    for (const std::string& word : command) line += word + " ";
    INFO(line << "\n" << ended.out << ended.err);
    REQUIRE(ended.code == 0);
    return ended.out;
}

// Returns the processes that wrote their ids into FOLDER/pids, with their start times.
inline std::vector<ProcessName> recorded_processes(const TemporaryFolder& folder) {
    std::vector<ProcessName> found;
    std::ifstream file(folder.path() + "/pids");
    for (pid_t pid = 0; file >> pid;) {
        const ProcessName name = name_process(pid);
        if (name.start_time != 0) found.push_back(name);
    }
    return found;
}

inline bool all_gone(const std::vector<ProcessName>& processes) {
    for (const ProcessName& process : processes) {
        if (name_process(process.pid) == process) return false;
    }
    return true;
}

}  // namespace dslaunch::test

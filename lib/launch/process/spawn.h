// Starts a program that inherits only the variables and descriptors named in the request, and waits
// for its end. Fork and exec happen in the calling thread.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dslaunch::launch {

// Names and values, in order. If a name has several values, the last value wins.
using EnvironmentList = std::vector<std::pair<std::string, std::string>>;

// Returns the environment of this process.
[[nodiscard]] EnvironmentList own_environment();

// A program to start. Descriptors are not owned; -1: /dev/null.
struct SpawnRequest {
    std::vector<std::string> command;  // argv[0] is looked up in PATH of `environment` unless it
                                       // contains a slash
    EnvironmentList environment = own_environment();  // the child's whole environment
    std::string working_directory;                    // empty: the caller's
    int stdin_fd = -1;                                // -1: /dev/null
    int stdout_fd = -1;
    int stderr_fd = -1;
    std::vector<int> kept_fds;     // keep their numbers in the child; all others are close-on-exec
    bool die_with_parent = false;  // SIGKILL when the calling thread ends
    bool new_session = false;      // true: no controlling terminal, so the child cannot ask the
                                   // user
    std::vector<int> processors;   // processors of the child; empty: the caller's
    int memory_node = -1;          // NUMA node to take memory from first; -1: none. Ignored if the
                                   // kernel refuses it
};

// The started process, or the reason why there is none.
struct SpawnResult {
    pid_t pid = -1;
    std::string error;    // what failed, in words; empty if the process runs
    int exit_code = 127;  // if nothing runs, the exit code that a shell gives: 126 for a program
                          // that exists but cannot run
};

// Starts the program in a process group of its own, with default signal actions and no blocked
// signal. Waits until the exec has worked or failed. REQUIRES: the command is not empty.
[[nodiscard]] SpawnResult spawn(const SpawnRequest& request);

// Returns the path of program NAME, found through the environment's PATH. Relative folders in PATH
// are below WORKING_DIRECTORY. Returns NAME itself if it contains a slash; empty if it is not
// found.
[[nodiscard]] std::string find_program(const std::string& name, const EnvironmentList& environment,
                                       const std::string& working_directory);

// Sets NAME, replacing an earlier value in place.
void set_variable(EnvironmentList& environment, const std::string& name, const std::string& value);

// Returns the value of NAME, or null.
[[nodiscard]] const std::string* find_variable(const EnvironmentList& environment,
                                               const std::string& name);

// Returns the exit code that a shell shows for STATUS, a result of waitpid(): 128+n for a signal.
[[nodiscard]] int exit_code_of(int status);

// Waits until PID, a child, has ended, and returns its exit code.
int wait_for_end(pid_t pid);

// Waits until PID, a child, has ended, and returns its exit code. After LIMIT it kills the child,
// or its process group if IS_GROUP, and returns nothing.
std::optional<int> wait_or_kill(pid_t pid, std::chrono::milliseconds limit, bool is_group = false);

// The result of sending bytes to a descriptor.
enum class Sending { kDone, kLater, kGone };
// Writes as much of OUTBOX as FD accepts now, and removes it from OUTBOX. FD: a non-blocking pipe
// or socket. kLater: some is left; kGone: nobody reads any more. REQUIRES: SIGPIPE is ignored, or
// FD is a socket.
[[nodiscard]] Sending send_now(int fd, std::string& outbox);

// Returns "SIGSEGV (segmentation fault)".
[[nodiscard]] std::string signal_text(int signal_number);

// Returns COMMAND's output on both streams, at most 1 MiB of it; empty if it cannot be run or does
// not end within LIMIT. COMMAND is found through this process's PATH and killed at the limit. The
// function does not wait for a command that does not die (a hanging driver).
[[nodiscard]] std::string program_output(const std::vector<std::string>& command,
                                         std::chrono::milliseconds limit);

// Returns the soft limit of RESOURCE (RLIMIT_MEMLOCK, RLIMIT_NOFILE, …); -1 if there is none or it
// is not known.
[[nodiscard]] int64_t soft_limit(decltype(RLIMIT_NOFILE) resource);

// Raises the soft limit of open descriptors to the hard limit if it is below WANTED, and logs this.
// Programs that this process starts inherit the raised limit. One connection to a host uses one to
// four descriptors. Returns the limit that applies now.
[[nodiscard]] size_t raise_descriptor_limit(size_t wanted);

// Sets or removes O_NONBLOCK, which all copies of FD share.
inline void set_blocking(int fd, bool blocking) {
    const int flags = ::fcntl(fd, F_GETFL);
    ::fcntl(fd, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

}  // namespace dslaunch::launch

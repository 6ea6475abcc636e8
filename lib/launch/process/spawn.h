// Starting a program with nothing inherited but what is named. Fork and exec happen in the calling
// thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "launch/process/environment_list.h"

namespace dslaunch::launch {

struct SpawnRequest {
    std::vector<std::string> command;  // argv[0] is looked up in PATH of `environment` unless it
                                       // holds a slash
    EnvironmentList environment;       // all of it; nothing else is inherited
    std::string working_directory;     // empty: the caller's
    int stdin_fd = -1;                 // -1: /dev/null
    int stdout_fd = -1;
    int stderr_fd = -1;
    std::vector<int> kept_fds;     // keep their numbers in the child; all others are close-on-exec
    bool die_with_parent = false;  // SIGKILL when the calling thread ends
    bool new_session = false;      // without a terminal: it cannot ask anybody anything
    std::vector<int> processors;   // processors of the child; empty: the caller's
    int memory_node = -1;          // NUMA node that is asked for memory first; -1: none. Left out
                                   // if the kernel refuses it
};

struct SpawnResult {
    pid_t pid = -1;
    std::string error;    // not empty: nothing runs; what failed, in words
    int exit_code = 127;  // when nothing runs, what a shell would end with: 126 for a program that
                          // is there and cannot run
};

// Starts the program in a process group of its own, with default signals and none blocked. Waits
// until the exec has worked or failed. REQUIRES: command not empty.
[[nodiscard]] SpawnResult spawn(const SpawnRequest& request);

// NAME as the environment's PATH finds it from WORKING_DIRECTORY; NAME itself when it holds a
// slash; empty: not found.
[[nodiscard]] std::string find_program(const std::string& name, const EnvironmentList& environment,
                                       const std::string& working_directory);

// The environment of this process.
[[nodiscard]] EnvironmentList own_environment();

// Sets NAME, replacing an earlier value in place.
void set_variable(EnvironmentList& environment, const std::string& name, const std::string& value);

// The value of NAME or nothing.
[[nodiscard]] const std::string* find_variable(const EnvironmentList& environment,
                                               const std::string& name);

// "SIGSEGV (segmentation fault)".
[[nodiscard]] std::string signal_text(int signal_number);

}  // namespace dslaunch::launch

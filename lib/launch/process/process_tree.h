// Processes of this machine, from /proc: their facts and their descendants. A process is identified
// by id and start time, so that a reused id is never signalled. Facts are empty if a process has
// ended meanwhile or may not be examined. No state.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launch/process/spawn.h"

namespace dslaunch::launch {

// Returns the whole file at PATH, in /proc or /sys; empty if it cannot be read or has more than
// BYTES_MAX bytes.
[[nodiscard]] std::string text_or_empty(const std::string& path, size_t bytes_max = 4U << 20);
// Returns the value in the first line "NAME : value" of TEXT; empty if there is no such line.
[[nodiscard]] std::string value_in(std::string_view text, std::string_view name);

// The name of a process. It stays different from all others even if the process id is used again.
struct ProcessName {
    pid_t pid = 0;
    uint64_t start_time = 0;  // clock ticks since boot, field 22 of /proc/PID/stat

    bool operator==(const ProcessName&) const = default;
};

// Returns the living (not zombie) descendants of ROOT, without ROOT. Empty if /proc is unreadable.
[[nodiscard]] std::vector<ProcessName> descendants(pid_t root);

// Returns this process and its ancestors except process 1.
[[nodiscard]] std::set<pid_t> own_line();
// Returns the id and start time of a living process; start_time is 0 if it does not exist or is a
// zombie.
[[nodiscard]] ProcessName name_process(pid_t pid);

// Sends SIGNAL_NUMBER through a pidfd, never to a process that reuses the id. Returns false if
// PROCESS is gone.
bool signal_process(const ProcessName& process, int signal_number);

// Returns "PID (NAME, state D in WCHAN)", which shows what a process does, or why it does not die.
[[nodiscard]] std::string describe_process(pid_t pid);

// Returns the ids of all processes, zombies included; empty if /proc cannot be read.
[[nodiscard]] std::vector<pid_t> all_processes();

// Returns the user of process PID; nothing if there is no such process.
[[nodiscard]] std::optional<uid_t> process_owner(pid_t pid);
// Returns the name of the program, without its arguments, which may contain secrets.
[[nodiscard]] std::string process_command(pid_t pid);
// Returns the environment that the process was started with.
[[nodiscard]] EnvironmentList process_environment(pid_t pid);

// Returns the name of USER, or its number if it has no name; printable.
[[nodiscard]] std::string user_name(uid_t user);

}  // namespace dslaunch::launch

// Processes of this machine, from /proc: their facts and their descendants. A process is named by
// id and start time, so that a reused id is never signalled. Facts are empty if a process has ended
// meanwhile or may not be examined. No state.
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

// Returns the whole file at PATH, of /proc or /sys; empty when it cannot be read or has more than
// BYTES_MAX.
[[nodiscard]] std::string text_or_empty(const std::string& path, size_t bytes_max = 4U << 20);
// Returns the value of the first line "NAME : value" of TEXT; empty when there is none.
[[nodiscard]] std::string value_in(std::string_view text, std::string_view name);

struct ProcessName {
    pid_t pid = 0;
    uint64_t start_time = 0;  // clock ticks since boot, field 22 of /proc/PID/stat

    bool operator==(const ProcessName&) const = default;
};

// Returns the living (not zombie) descendants of ROOT, without ROOT. Empty if /proc is unreadable.
[[nodiscard]] std::vector<ProcessName> descendants(pid_t root);

// Returns this process and its ancestors except process 1.
[[nodiscard]] std::set<pid_t> own_line();
// Returns the name of a living process; start_time 0 when it does not exist or is a zombie.
[[nodiscard]] ProcessName name_process(pid_t pid);

// Sends SIGNAL_NUMBER through a pidfd if the process is still the same one; false when it is gone.
bool signal_process(const ProcessName& process, int signal_number);

// Returns "PID (NAME, state D in WCHAN)": what a process does, or why it does not die.
[[nodiscard]] std::string describe_process(pid_t pid);

// Returns the ids of all processes, zombies included; empty where /proc cannot be read.
[[nodiscard]] std::vector<pid_t> all_processes();

[[nodiscard]] std::optional<uid_t> process_owner(pid_t pid);
// Returns the name of the program, without its arguments: they may hold secrets.
[[nodiscard]] std::string process_command(pid_t pid);
// Returns the environment that the process was started with.
[[nodiscard]] EnvironmentList process_environment(pid_t pid);

// Returns the name of USER, or its number without a name; printable.
[[nodiscard]] std::string user_name(uid_t user);

}  // namespace dslaunch::launch

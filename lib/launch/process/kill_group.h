// Control groups of version 2 that hold all that an attempt's agent starts, so that a later agent
// ends it in one stroke (cgroup.kill), whatever became of parents, sessions and environments. They
// are made below the agent's own group, if it may: root's, or one that systemd or a scheduler has
// delegated. Without a group only the launch's id in the processes' environment names them
// (launch/agent/device_report.h). One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace dslaunch::launch {

// The name of a group's folder: "dslaunch-ID-ATTEMPT-AGENT".
struct KillGroupName {
    std::string launch_id;  // not empty; may hold dashes
    int64_t attempt = 0;
    int64_t agent = 0;  // process id of the agent

    bool operator==(const KillGroupName&) const = default;
};
[[nodiscard]] std::string kill_group_name(const KillGroupName& name);
// Parses TEXT; nothing: it is not such a name.
[[nodiscard]] std::optional<KillGroupName> parse_kill_group(std::string_view text);

// Moves this process, and all that it starts from now on, into a group of its own for ATTEMPT of
// the launch. Returns false if it may not, which is not an error.
bool enter_kill_group(const std::string& launch_id, int64_t attempt);

// Returns the processes in the launch's groups of attempts before ATTEMPT, below this process's
// group and the groups beside it.
[[nodiscard]] std::set<pid_t> kill_group_members(const std::string& launch_id, int64_t attempt);
// Sends KILL to all processes in those groups, and removes groups without processes.
void kill_groups(const std::string& launch_id, int64_t attempt);

// Removes the group that process AGENT had entered, if it is empty. REQUIRES: this process is in
// the group that AGENT was in before.
void remove_kill_group_of(pid_t agent);

// Keeps a guardian above the agent to end what the agent left. Killing the agent ends its workers
// (parent-death signal) but not their descendants, which the guardian adopts and kills. Forks: BODY
// runs in the child, with SIGCHLD, SIGTERM, SIGINT, SIGHUP and SIGUSR1 arriving at the descriptor
// it is given. This process waits for the child, passes those signals on, and kills every
// descendant once the child is gone. Returns the child's exit code, 128+n for a signal. SIGTERM
// reaches the child when this process is killed.
[[nodiscard]] int run_guarded(const std::function<int(int signal_fd)>& body);

// Kills every descendant of this process again and again until none is left or LIMIT ms have
// passed. Returns true when none is left. REQUIRES: this process is a subreaper.
bool kill_descendants(int limit_ms);

}  // namespace dslaunch::launch

// Control groups (cgroup v2) for the processes that the agent of an attempt starts. A later agent
// ends all processes of a group at once (cgroup.kill), even if their parents, sessions or
// environments have changed. The groups are created below the agent's own group, if the agent may
// do so: as root, or if systemd or a scheduler has delegated its group. Without a control group,
// only the launch's id in the environment identifies the processes
// (launch/agent/leftover_processes.h). One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace dslaunch::launch {

// The name of a control group's folder: "dslaunch-ID-ATTEMPT-AGENT".
struct KillGroupName {
    std::string launch_id;  // not empty; may contain dashes
    int64_t attempt = 0;
    int64_t agent = 0;  // process id of the agent

    bool operator==(const KillGroupName&) const = default;
};
// Returns the name of the control group of one attempt.
[[nodiscard]] std::string kill_group_name(const KillGroupName& name);
// Parses TEXT; returns nothing if it is not the name of a control group.
[[nodiscard]] std::optional<KillGroupName> parse_kill_group(std::string_view text);

// Moves this process, and everything that it starts from now on, into a group of its own for
// ATTEMPT of the launch. Returns false if this process may not create the group, which is not an
// error.
bool enter_kill_group(const std::string& launch_id, int64_t attempt);

// Returns the processes in the control groups of the launch's attempts before ATTEMPT. It searches
// below this process's group and its sibling groups.
[[nodiscard]] std::set<pid_t> kill_group_members(const std::string& launch_id, int64_t attempt);
// Sends KILL to all processes in the groups that kill_group_members() searches, and removes groups
// without processes.
void kill_groups(const std::string& launch_id, int64_t attempt);

// Removes the group that process AGENT made for itself with enter_kill_group(), if the group is
// empty. REQUIRES: this process is in the group that AGENT left.
void remove_kill_group_of(pid_t agent);

// Runs BODY in a child, the agent, and stays as its guardian, to end the processes that the agent
// leaves. Killing the agent ends its workers (parent-death signal) but not their descendants, which
// the guardian adopts and kills. In the child, SIGCHLD, SIGTERM, SIGINT, SIGHUP and SIGUSR1 arrive
// at the descriptor that BODY gets. This process waits for the child, forwards these signals to it,
// and kills every descendant once the child is gone. Returns the child's exit code, 128+n for a
// signal. If this process is killed, the child gets SIGTERM.
[[nodiscard]] int run_guarded(const std::function<int(int signal_fd)>& body);

// Kills every descendant of this process, repeatedly, until none is left or LIMIT_MS milliseconds
// have passed. Returns true if none is left. REQUIRES: this process is a subreaper.
bool kill_descendants(int limit_ms);

}  // namespace dslaunch::launch

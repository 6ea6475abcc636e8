// Starts an agent on a host and carries bytes to and from it: the boundary between the supervisor
// and ssh. One thread owns a transport; only wait() blocks, for at most its TIMEOUT.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "launch/plan/job_spec.h"

namespace dslaunch::launch {

// The subcommand of this program that runs on a host.
enum class RemoteProgram {
    kAgent,
    kRelay,  // launch/transport/tree/relay.cpp: starts agents on further hosts
};

// The address of a host, and the program to start on the host.
struct HostAddress {
    // The members that are sent to a relay (base/text/message.h).
    static auto wire_members(auto& m) { return std::tie(m.name, m.user, m.port, m.address); }

    std::string name;     // for messages
    std::string user;     // empty: from the ssh configuration
    int port = 0;         // 0: from the ssh configuration
    std::string address;  // empty: `name`
    RemoteProgram program = RemoteProgram::kAgent;
    // The command for the host's shell; empty: the agent's command. REQUIRES: its variable parts
    // contain only text that launcher_path() allows.
    std::string command = {};
};

// Returns one address for each of NODES, in the same order.
[[nodiscard]] std::vector<HostAddress> addresses_of(const std::vector<PlannedNode>& nodes);

// An event of one host.
struct TransportEvent {
    // The kind of event.
    enum class Kind {
        kBytes,       // bytes of the agent's stdout
        kDiagnostic,  // one line that the agent or the connection printed on stderr
        kEnded,       // the agent or the connection is gone; the host's last event
    };
    Kind kind = Kind::kBytes;
    size_t host = 0;
    std::string text;  // kBytes: bytes. kDiagnostic: the line. kEnded: the reason, or empty if the
                       // program ended by itself
    int exit_status = -1;  // kEnded: status of the remote program, 128+n for a signal; -1: unknown
};

// Connections to the agents of one job or command.
class Transport {
  public:
    virtual ~Transport() = default;
    // Begins to start an agent on each host and returns at once; from now on hosts are identified
    // by their index. Must be called only once.
    virtual void start(const std::vector<HostAddress>& hosts) = 0;
    // Queues bytes for the agent's stdin; they are dropped if the host has ended.
    virtual void send(size_t host, std::string_view bytes) = 0;
    // Closes the agent's stdin after the queued bytes have been sent.
    virtual void close_input(size_t host) = 0;
    // Ends the connection at once, in any state; there is no further event of this host.
    virtual void abandon(size_t host) = 0;
    // Begins to start one more host, after start(); its index is the previous number of hosts. Only
    // transports that can carry a tree (launch/transport/tree/tree_transport.h) implement add() and
    // hold().
    [[nodiscard]] virtual size_t add(const HostAddress& host);
    // While HELD is true, this host's stdout is not read; its output waits on the host.
    virtual void hold(size_t host, bool held);
    // Returns the events so far, in order for each host. Waits for events for at most TIMEOUT, and
    // only until WAKE_FD is readable (-1: none).
    [[nodiscard]] virtual std::vector<TransportEvent> wait(std::chrono::milliseconds timeout,
                                                           int wake_fd) = 0;
};

// Returns this program's path in the form that is sent to other hosts. Throws Error{kUsage} if it
// contains a character with a special meaning in a shell.
[[nodiscard]] std::string launcher_path();
// Returns the command for HOST's shell. Its only variable part is PATH, which is launcher_path().
[[nodiscard]] std::string remote_command(const std::string& path, const HostAddress& host);

// Runs agents as children of this process; each child plays the part of one host. HANDS_STDIN: rank
// 0 gets this process's stdin, through the first agent.
[[nodiscard]] std::unique_ptr<Transport> make_local_transport(bool hands_stdin = false);
// Runs the ssh program, once per host. If SSH_CONFIG_PATH is empty, the user's and the system's
// configuration are used. ARGUMENTS: further `-o NAME=VALUE` for the ssh program.
[[nodiscard]] std::unique_ptr<Transport> make_openssh_transport(
    const std::string& ssh_config_path, const std::vector<std::string>& arguments = {});
// Uses libssh, with all sessions in one event loop.
[[nodiscard]] std::unique_ptr<Transport> make_ssh_transport(const std::string& ssh_config_path);

// Waits at SPEC.listen for agents that connect by themselves. If SPEC.serves_node_0 is true, also
// starts an agent on this machine as node 0.
[[nodiscard]] std::unique_ptr<Transport> make_joining_transport(const JobSpec& spec);
// Starts all agents with one srun inside a Slurm allocation; they call back.
[[nodiscard]] std::unique_ptr<Transport> make_slurm_transport(const JobSpec& spec);

// Starts all agents with one pdsh, or with one mpirun; the agents then connect to the launcher.
[[nodiscard]] std::unique_ptr<Transport> make_pdsh_transport(const JobSpec& spec);
[[nodiscard]] std::unique_ptr<Transport> make_openmpi_transport(const JobSpec& spec);

// Makes the transport that SPEC.transport names.
[[nodiscard]] std::unique_ptr<Transport> make_transport(const JobSpec& spec);

// The largest number of attempts to connect. For example, an sshd with MaxStartups 10:30:100 drops
// about 3 of 10 connections that come at the same time, and about 40 of 60. All pauses together
// take 9 s at most.
inline constexpr int kConnectAttempts = 10;

// Returns the wait after attempt number ATTEMPT (from 1): a random time between `limit / 2` and
// `limit`. The limit is 50 ms at first and doubles with each attempt, up to 2 s.
[[nodiscard]] inline std::chrono::milliseconds backoff_delay(int attempt) {
    static thread_local std::minstd_rand random{std::random_device{}()};
    const int64_t full = std::min<int64_t>(2000, int64_t{50} << std::clamp(attempt - 1, 0, 10));
    return std::chrono::milliseconds(
        std::uniform_int_distribution<int64_t>(full / 2, full)(random));
}

}  // namespace dslaunch::launch

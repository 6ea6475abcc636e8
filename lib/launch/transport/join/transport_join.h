// A transport for agents that call back: the launcher listens, and each agent that connects and
// proves that it holds the token becomes one host of the job. Its connection then carries the agent
// protocol as a pipe would. Agents come by themselves (a pod, another terminal) or are started by
// one program (starters.cpp). One thread; only wait() blocks.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/plan/worker_environment.h"
#include "launch/transport/join/join_endpoint.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

struct StarterLine {
    std::optional<size_t> host;  // host that the line is about
    std::string text;            // the line without the host's name
};

// The differences between the programs that start all agents of a job at once (srun, mpirun, pdsh,
// …). The program is one child of the launcher; its agents call back.
class AgentStarter {
  public:
    virtual ~AgentStarter() = default;
    // Returns the program's name as messages write it: "srun".
    [[nodiscard]] virtual std::string name() const = 0;
    // Returns the argv, without the token, that starts `dslaunch agent --join ENDPOINT …` once on
    // each of HOSTS. --node, --node-from, --node-name or --node-name-from give their names.
    [[nodiscard]] virtual std::vector<std::string> command(const std::vector<HostAddress>& hosts,
                                                           const std::string& endpoint) const = 0;
    // Changes the environment of this process into the program's: adds the token (empty over a Unix
    // socket), and removes what it must not inherit.
    virtual void prepare_environment(EnvironmentList& environment,
                                     const std::string& token) const = 0;
    // Returns the descriptor that the agent gives rank 0 as its stdin, -1: none.
    [[nodiscard]] virtual int worker_stdin() const { return -1; }
    // Returns the program's own stdin, which it passes on to node 0's agent; -1: /dev/null.
    [[nodiscard]] virtual int own_stdin() const { return -1; }
    // Returns true if it starts HOST's agent; other agents come by themselves.
    [[nodiscard]] virtual bool starts(size_t host) const {
        static_cast<void>(host);
        return true;
    }
    // Returns the one of HOSTS that a line of the program is about; default: the first whose name
    // stands in it as a word of its own.
    [[nodiscard]] virtual std::optional<size_t> host_of(
        const std::string& line, const std::vector<HostAddress>& hosts) const;
    // Takes apart a line that the program wrote; default: host_of() and the whole line.
    [[nodiscard]] virtual StarterLine read_line(const std::string& line,
                                                const std::vector<HostAddress>& hosts) const;
    // Returns true if LINE, which is about a host, says that this host is lost.
    [[nodiscard]] virtual bool says_host_is_lost(const std::string& line) const = 0;
    // Returns the exit code of the agent that such a line reports, -1: none.
    [[nodiscard]] virtual int exit_status_in(const std::string& line) const {
        static_cast<void>(line);
        return -1;
    }
    // Returns the reason why hosts have no agent when the program ended with STATUS (128+n for a
    // signal) and last wrote LINES.
    [[nodiscard]] virtual std::string describe_end(int status,
                                                   const std::deque<std::string>& lines) const;
};

// The program as a child process: its lines, its end.
class StarterProcess {
  public:
    // Starts the program; a failure to start counts as its end.
    StarterProcess(const AgentStarter& starter, const std::vector<HostAddress>& hosts,
                   const std::string& endpoint, const std::string& token);
    StarterProcess(const StarterProcess&) = delete;
    StarterProcess& operator=(const StarterProcess&) = delete;
    ~StarterProcess();  // does the same as end()

    // Returns the descriptors that are readable when lines wait; -1: no more lines.
    [[nodiscard]] const std::vector<int>& fds() const { return fds_; }
    // Returns whole lines that it has written on either stream, without newlines. Does not block.
    [[nodiscard]] std::vector<std::string> take_lines();
    // Returns the status once it has ended and all lines were taken: 128+n for a signal.
    [[nodiscard]] std::optional<int> ended();
    [[nodiscard]] const std::deque<std::string>& last_lines() const { return last_lines_; }
    // Gives it time to end by itself (its agents are gone), then ends it and its process group.
    // Blocks for at most 4 s.
    void end();

  private:
    struct Stream;
    void keep(const std::string& line);

    int pid_ = -1;
    std::optional<int> status_;
    std::vector<std::unique_ptr<Stream>> streams_;
    std::vector<int> fds_;
    std::deque<std::string> last_lines_;
};

// Returns the first of HOSTS whose name stands in LINE as a word of its own, or nothing.
[[nodiscard]] std::optional<size_t> host_named_in(const std::string& line,
                                                  const std::vector<HostAddress>& hosts);

// The most connections that have not yet proven themselves: a newer one takes the oldest one's
// place. Each has limited time and is read only to the length of a handshake.
inline constexpr size_t kUnprovenConnectionsMax = 128;

struct JoinSettings {
    // The endpoint to listen at. Empty: a Unix socket in a private folder, without token; a host
    // without port: a free port.
    JoinEndpoint endpoint;
    std::string token;  // not empty over TCP
    // The time from start() until a host that has not joined is given up.
    std::chrono::milliseconds join_max{30'000};
    std::unique_ptr<AgentStarter> starter;       // null: every agent comes by itself
    bool announce = false;                       // a log line for each agent that joins
    std::chrono::milliseconds proof_max{5'000};  // limit for a connection to identify itself
    // The clock for these limits. It must outlive the transport; null: the system's.
    const Clock* clock = nullptr;
};

// Returns the settings for agents that STARTER starts and that call back over TCP, to the address
// that faces SPEC's hosts.
[[nodiscard]] JoinSettings called_back(const JobSpec& spec, std::unique_ptr<AgentStarter> starter);

// Makes the transport. Over TCP, strangers, garbage and wrong tokens cost only their own
// connection. An agent is refused with the reason if its host has joined, or if all have come. Once
// every host has joined or ended nobody can connect any more. A host that is missing when the
// starter ended, or after join_max, ends with the starter's last words or with who came instead.
// start() throws Error{kSetup} when it cannot listen.
[[nodiscard]] std::unique_ptr<Transport> make_join_transport(JoinSettings settings);

}  // namespace dslaunch::launch

// Agents that call back: the launcher listens, and each agent that connects and proves that it
// holds the token becomes one host of the job. From then on its connection carries the agent
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
// …). The program is one child of the launcher; the agents that it starts call back.
class AgentStarter {
  public:
    virtual ~AgentStarter() = default;
    // The program's name as messages write it: "srun".
    [[nodiscard]] virtual std::string name() const = 0;
    // The argv that starts `dslaunch agent --join ENDPOINT …` once on each of HOSTS, which name
    // themselves by --node, --node-from, --node-name or --node-name-from. Never holds the token.
    [[nodiscard]] virtual std::vector<std::string> command(const std::vector<HostAddress>& hosts,
                                                           const std::string& endpoint) const = 0;
    // Changes the environment of this process into the program's: the token (empty over a Unix
    // socket), and what it must not inherit.
    virtual void prepare_environment(EnvironmentList& environment,
                                     const std::string& token) const = 0;
    // The descriptor that the agent gives rank 0 as its stdin, -1: none.
    [[nodiscard]] virtual int worker_stdin() const { return -1; }
    // The program's own stdin, which it passes on to node 0's agent; -1: /dev/null.
    [[nodiscard]] virtual int own_stdin() const { return -1; }
    // True: HOST's agent is started by it; the others come by themselves.
    [[nodiscard]] virtual bool starts(size_t host) const {
        static_cast<void>(host);
        return true;
    }
    // The one of HOSTS of which a line speaks that the program wrote; default: the first whose name
    // stands in it as a word of its own.
    [[nodiscard]] virtual std::optional<size_t> host_of(
        const std::string& line, const std::vector<HostAddress>& hosts) const;
    // A line that the program wrote, taken apart; default: host_of() and the whole line.
    [[nodiscard]] virtual StarterLine read_line(const std::string& line,
                                                const std::vector<HostAddress>& hosts) const;
    // True: a line that speaks of a host says that this host is lost.
    [[nodiscard]] virtual bool says_host_is_lost(const std::string& line) const = 0;
    // The exit code of its agent as such a line tells it, -1: none.
    [[nodiscard]] virtual int exit_status_in(const std::string& line) const {
        static_cast<void>(line);
        return -1;
    }
    // The reason why hosts have no agent when the program ended with STATUS (128+n for a signal),
    // having written LINES last.
    [[nodiscard]] virtual std::string describe_end(int status,
                                                   const std::deque<std::string>& lines) const;
};

// The program as a child process: its lines, its end.
class StarterProcess {
  public:
    // Starts it; a failure to start is its end.
    StarterProcess(const AgentStarter& starter, const std::vector<HostAddress>& hosts,
                   const std::string& endpoint, const std::string& token);
    StarterProcess(const StarterProcess&) = delete;
    StarterProcess& operator=(const StarterProcess&) = delete;
    ~StarterProcess();  // does the same as end()

    // Readable when lines wait; -1: none any more.
    [[nodiscard]] const std::vector<int>& fds() const { return fds_; }
    // Whole lines that it has written on either stream, without their newlines. Does not block.
    [[nodiscard]] std::vector<std::string> take_lines();
    // The program's status once it has ended and all its lines were taken: 128+n for a signal.
    [[nodiscard]] std::optional<int> ended();
    [[nodiscard]] const std::deque<std::string>& last_lines() const { return last_lines_; }
    // Lets it end by itself for a while (its agents are gone), then ends it and its process group.
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

// The first of HOSTS whose name stands in LINE as a word of its own, or nothing.
[[nodiscard]] std::optional<size_t> host_named_in(const std::string& line,
                                                  const std::vector<HostAddress>& hosts);

// Connections that have not yet proven themselves: a newer one takes the oldest one's place, none
// lasts longer than the time, and none is read further than a handshake is long.
inline constexpr size_t kUnprovenConnectionsMax = 128;

struct JoinSettings {
    // The endpoint to listen at. Nothing given: a Unix socket in a private folder, without token; a
    // host without port: a free port.
    JoinEndpoint endpoint;
    std::string token;  // not empty over TCP
    // The time from start() until a host that has not joined is given up.
    std::chrono::milliseconds join_max{30'000};
    std::unique_ptr<AgentStarter> starter;       // null: every agent comes by itself
    bool announce = false;                       // a log line for each agent that joins
    std::chrono::milliseconds proof_max{5'000};  // limit for a connection to identify itself
    // The clock by which these limits are kept. It must outlive the transport; null: the system's.
    const Clock* clock = nullptr;
};

// The settings for agents that STARTER starts and that call back over TCP, to the address that
// faces SPEC's hosts.
[[nodiscard]] JoinSettings called_back(const JobSpec& spec, std::unique_ptr<AgentStarter> starter);

// Over TCP, strangers, garbage and wrong tokens cost their own connection and nothing else. An
// agent that names a host which has joined, or none where all have come, is refused with the
// reason. Once every host has joined or ended nobody can connect any more. A host that is missing
// when the starter ended, or after join_max, ends with the starter's last words or with who came
// instead. start() throws Error{kSetup} when it cannot listen.
[[nodiscard]] std::unique_ptr<Transport> make_join_transport(JoinSettings settings);

}  // namespace dslaunch::launch

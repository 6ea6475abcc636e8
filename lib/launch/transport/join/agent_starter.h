// The programs that start all agents of a job at the same time, such as srun.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "launch/process/spawn.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

// The parts of a line that the program wrote.
struct StarterLine {
    std::optional<size_t> host;  // host that the line is about
    std::string text;            // the line without the host's name
};

// The differences between the programs that start all agents of a job at the same time (srun,
// mpirun, pdsh, …). The program is a single child of the launcher; its agents call back.
class AgentStarter {
  public:
    virtual ~AgentStarter() = default;
    // Returns the program's name for messages: "srun".
    [[nodiscard]] virtual std::string name() const = 0;
    // Returns the argv, without the token, that starts `dslaunch agent --join ENDPOINT …` once on
    // each of HOSTS. One of --node, --node-from, --node-name and --node-name-from tells each agent
    // which host it is.
    [[nodiscard]] virtual std::vector<std::string> command(const std::vector<HostAddress>& hosts,
                                                           const std::string& endpoint) const = 0;
    // Prepares ENVIRONMENT, a copy of this process's environment, for the program: adds the token
    // (empty over a Unix socket), and removes variables that the program must not inherit.
    virtual void prepare_environment(EnvironmentList& environment,
                                     const std::string& token) const = 0;
    // Returns the descriptor that becomes the stdin of rank 0 on its host; -1: none.
    [[nodiscard]] virtual int worker_stdin() const { return -1; }
    // Returns the program's own stdin, which it passes on to node 0's agent; -1: /dev/null.
    [[nodiscard]] virtual int own_stdin() const { return -1; }
    // Returns true if the program starts HOST's agent; other agents connect by themselves.
    [[nodiscard]] virtual bool starts(size_t host) const {
        static_cast<void>(host);
        return true;
    }
    // Returns the index of the host that a line of the program is about. Default: the first host
    // whose name is a separate word in the line.
    [[nodiscard]] virtual std::optional<size_t> host_of(
        const std::string& line, const std::vector<HostAddress>& hosts) const;
    // Parses a line that the program wrote. By default, the result contains the host from host_of()
    // and the whole line as its text.
    [[nodiscard]] virtual StarterLine read_line(const std::string& line,
                                                const std::vector<HostAddress>& hosts) const;
    // Returns true if LINE, which is about a host, says that this host is lost.
    [[nodiscard]] virtual bool says_host_is_lost(const std::string& line) const = 0;
    // Returns the exit code that LINE reports for a host's agent; -1 if LINE reports none.
    [[nodiscard]] virtual int exit_status_in(const std::string& line) const {
        static_cast<void>(line);
        return -1;
    }
    // Returns the reason why hosts have no agent if the program ended with STATUS (128+n for a
    // signal) and its last lines were LINES.
    [[nodiscard]] virtual std::string describe_end(int status,
                                                   const std::deque<std::string>& lines) const;
};

// Returns the first of HOSTS whose name is a separate word in LINE, or nothing.
[[nodiscard]] std::optional<size_t> host_named_in(const std::string& line,
                                                  const std::vector<HostAddress>& hosts);

}  // namespace dslaunch::launch

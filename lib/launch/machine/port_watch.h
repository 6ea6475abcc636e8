// Finds the process that uses a TCP port of this machine, for the error message if the ranks cannot
// meet there, and watches who listens on MASTER_PORT once the ranks of a script run. Asks the
// kernel with sock_diag(7), or else reads /proc; one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>

namespace dslaunch::launch {

// Returns "process 4711 (python3 -m http.server 29500)" for a process that listens on PORT in this
// network namespace; "a process of user alice" for another user's process, whose number only root
// can see; empty if no process listens. Safe to print.
[[nodiscard]] std::string describe_port_owner(int port);

// Returns the ids of users who listen on PORT in this network namespace.
[[nodiscard]] std::set<int64_t> port_users(int port);

// Watches MASTER_PORT. Rank 0 of a script binds this port itself, a moment after the agent has
// released it. If another user of the machine binds it in this moment, that user serves the store
// that all ranks trust. Data path: agent -> [here] -> AgentProblem.
class PortWatch {
  public:
    using Time = std::chrono::steady_clock::time_point;

    // Checks PORT from NOW on until a process listens there, at most for a minute.
    void begin(int port, Time now);
    // Returns the time of the next check, or never.
    [[nodiscard]] Time next_look() const { return next_look_; }
    // Checks the port if it is time. If only processes of other users listen there, returns a text
    // that says so; otherwise returns an empty text.
    [[nodiscard]] std::string look(Time now);

  private:
    int port_ = 0;
    Time next_look_ = Time::max();
    Time end_;
    std::chrono::milliseconds pause_{};  // the current time between two checks
};

}  // namespace dslaunch::launch

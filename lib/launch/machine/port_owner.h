// Finds the process that holds a TCP port of this machine, for the message when the ranks cannot
// meet there, and watches who listens on MASTER_PORT once the ranks of a script run. Reads /proc;
// one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>

namespace dslaunch::launch {

// Returns "process 4711 (python3 -m http.server 29500)" for a process that listens on PORT in this
// network namespace; "a process of user alice" for another user's, whose number only root sees;
// empty when nobody listens. Safe to print.
[[nodiscard]] std::string describe_port_owner(int port);

// Returns the ids of users who listen on PORT in this network namespace: one /proc/net read.
[[nodiscard]] std::set<int64_t> port_users(int port);

// Rank 0 of a script binds MASTER_PORT itself, a moment after the agent has let go of it: another
// user of the machine who is faster would serve the store that all ranks trust. Data path: agent ->
// here -> AgentProblem.
class PortWatch {
  public:
    using Time = std::chrono::steady_clock::time_point;

    // Looks at PORT from NOW on until somebody listens there, at most for a minute.
    void begin(int port, Time now);
    // Returns the time of the next look, or never.
    [[nodiscard]] Time next_look() const { return next_look_; }
    // Looks if it is time. Returns the reason why the port is not the rank's, else empty.
    [[nodiscard]] std::string look(Time now);

  private:
    int port_ = 0;
    Time next_look_ = Time::max();
    Time end_;
    std::chrono::milliseconds pause_{};  // between the looks at hand
};

}  // namespace dslaunch::launch

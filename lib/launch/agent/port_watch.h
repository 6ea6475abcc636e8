// A look at who listens on MASTER_PORT once the ranks of a script run. Rank 0 binds the port
// itself, a moment after the agent has let go of it: another user of the machine who is faster
// would serve the store that all ranks trust. Data path: agent -> here -> AgentProblem. One thread.
#pragma once

#include <chrono>
#include <string>

namespace dslaunch::launch {

class PortWatch {
  public:
    using Time = std::chrono::steady_clock::time_point;

    // Looks at PORT from NOW on until somebody listens there, at most for a minute.
    void begin(int port, Time now);
    // The time of the next look; never, if there is none.
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

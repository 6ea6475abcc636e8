// The program that starts all agents of a job, run as a child process. One thread.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/transport/join/agent_starter.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

// The starter program as a child process, with its output lines and its exit status.
class StarterProcess {
  public:
    // Starts the program; a failure to start it counts as its end.
    StarterProcess(const AgentStarter& starter, const std::vector<HostAddress>& hosts,
                   const std::string& endpoint, const std::string& token);
    StarterProcess(const StarterProcess&) = delete;
    StarterProcess& operator=(const StarterProcess&) = delete;
    ~StarterProcess();  // does the same as end()

    // Returns one descriptor for each stream of the program. A descriptor becomes readable when
    // lines wait; it is -1 after the end of the stream.
    [[nodiscard]] const std::vector<int>& fds() const { return fds_; }
    // Returns whole lines, without newlines, that the program has written on either stream. Does
    // not block.
    [[nodiscard]] std::vector<std::string> take_lines();
    // Returns the exit status once the program has ended and all its lines were taken: 128+n for a
    // signal.
    [[nodiscard]] std::optional<int> ended();
    // Returns the program's last lines, the oldest first. If the program could not be started,
    // returns the error instead.
    [[nodiscard]] const std::deque<std::string>& last_lines() const { return last_lines_; }
    // Gives the program time to end by itself after its agents have ended, then ends it and its
    // process group. Blocks for at most 4 s.
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

}  // namespace dslaunch::launch

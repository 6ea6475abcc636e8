// A name that one process of this machine holds as long as it lives and others of the same user
// watch: an abstract Unix socket, which leaves no file. Copies of dslaunch that do not launch a job
// learn of its end by it. One thread each.
#pragma once

#include <chrono>
#include <string>

#include "base/fd.h"

namespace dslaunch::launch {

// An agent holds the name in this variable. Its workers do not see the variable.
inline constexpr const char* kHeldNameVariable = "DSL_HELD_NAME";

class HeldName {
  public:
    HeldName() = default;
    // Holds NAME from here on, or nothing if another process holds it already.
    explicit HeldName(const std::string& name);
    [[nodiscard]] bool is_held() const { return socket_.valid(); }

  private:
    UniqueFd socket_;  // it listens, and nobody accepts: who connects waits in its queue
};

// Removes kHeldNameVariable from the environment and returns its value, empty if it was not set.
[[nodiscard]] std::string take_held_name_variable();

struct NameWait {
    std::chrono::milliseconds appears_max;  // for somebody to hold it
    std::chrono::milliseconds returns_max;  // for the next one to hold it, after one has ended
    int signal_fd = -1;                     // readable: the wait ends, if nobody holds the name
};

// Waits until a process of this user has held NAME and nobody does any more. Returns false if
// nobody held it in time, or a signal came before.
[[nodiscard]] bool wait_for_release(const std::string& name, const NameWait& limits);

}  // namespace dslaunch::launch

// A name that one process of this machine holds until it ends, and that other processes of the same
// user can watch: an abstract Unix socket, which leaves no file. If several copies of dslaunch are
// started and one of them launches the job, the others watch its name to learn when the job has
// ended. One thread uses an object.
#pragma once

#include <chrono>
#include <string>

#include "base/fd.h"

namespace dslaunch::launch {

// The agent holds the name that this variable contains. The agent's workers do not see the
// variable.
inline constexpr const char* kHeldNameVariable = "DSL_HELD_NAME";

// A held name; destroying the object releases it.
class HeldName {
  public:
    HeldName() = default;
    // Holds NAME from now on, unless another process holds it already.
    explicit HeldName(const std::string& name);
    // Returns true if this object holds its name.
    [[nodiscard]] bool is_held() const { return socket_.valid(); }

  private:
    UniqueFd socket_;  // it listens but never accepts: watchers wait in its queue
};

// Removes kHeldNameVariable from the environment and returns its value, empty if it was not set.
[[nodiscard]] std::string take_held_name_variable();

// The limits of wait_for_release().
struct NameWait {
    std::chrono::milliseconds appears_max;  // the wait for a first holder
    std::chrono::milliseconds returns_max;  // the wait for the next holder, after one has ended
    int signal_fd = -1;                     // if it becomes readable, the wait ends unless a
                                            // process holds the name
};

// Waits until a process of this user has held NAME and no process holds it any more. Returns false
// if no process held it in time, or if a signal arrived first.
[[nodiscard]] bool wait_for_release(const std::string& name, const NameWait& limits);

}  // namespace dslaunch::launch

// Hands the launcher's own stdin to rank 0 if the launcher starts it on this machine, as deepspeed
// and torchrun do, or if mpirun or srun starts it. The launcher itself reads nothing, so that a
// program that reads stdin after the launcher misses nothing. There are two exceptions: mpirun and
// srun read ahead, and if stdin is a terminal, a thread passes on what is typed.
#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/machine/small_thread.h"
#include "launch/process/spawn.h"

namespace dslaunch::launch {

// Returns a copy of stdin, close-on-exec. It is invalid if stdin is closed, or if it is a terminal
// on which this process is in the background, so that the input belongs to another program.
[[nodiscard]] UniqueFd stdin_for_worker();

// stdin for a program that passes it on, such as mpirun or srun. The program runs in a process
// group of its own, which may not read this process's terminal, so it gets a pipe instead of a
// terminal.
class StdinForStarter {
  public:
    // If WANTED is false, fd() is -1. Throws Error{kSetup} if descriptors or threads run out.
    explicit StdinForStarter(bool wanted);
    StdinForStarter(const StdinForStarter&) = delete;
    StdinForStarter& operator=(const StdinForStarter&) = delete;
    // Ends without waiting for the user to type.
    ~StdinForStarter();

    // Returns the descriptor; -1 if there is none, as in stdin_for_worker().
    [[nodiscard]] int fd() const { return own_.valid() ? own_.get() : typed_.read_end.get(); }
    // Returns true if the user's terminal is at the other end of fd().
    [[nodiscard]] bool is_terminal() const { return typed_.read_end.valid(); }

  private:
    void pass_on();

    UniqueFd own_;  // stdin itself, if it is not a terminal
    UniqueFd terminal_;
    Pipe typed_;
    Pipe wake_;
    SmallThread thread_;  // started last
};

// Adds the command-line words with which an agent passes its own stdin on to rank 0.
void add_stdin_words(std::vector<std::string>& words, const StdinForStarter& input);

}  // namespace dslaunch::launch

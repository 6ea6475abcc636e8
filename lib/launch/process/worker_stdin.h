// The launcher's own stdin for rank 0, where the launcher starts it on this machine, as deepspeed
// and torchrun hand it down, and where mpirun or srun does. Nothing is read here, so that nothing
// is taken from a program that reads after this one; but mpirun and srun read ahead, and of a
// terminal a thread passes on what is typed.
#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/small_thread.h"

namespace dslaunch::launch {

// A copy of stdin, close-on-exec; not valid: it is closed, or a terminal that this process has in
// the background, whose input is another program's.
[[nodiscard]] UniqueFd stdin_for_worker();

// stdin for a program that passes it on itself. It runs in a process group of its own, which may
// not read this process's terminal, so that it gets a pipe in a terminal's place.
class StdinForStarter {
  public:
    // Not WANTED: fd() is -1. Throws Error{kSetup} when descriptors or threads are short.
    explicit StdinForStarter(bool wanted);
    StdinForStarter(const StdinForStarter&) = delete;
    StdinForStarter& operator=(const StdinForStarter&) = delete;
    // Does not wait for who types.
    ~StdinForStarter();

    // -1: there is none, as in stdin_for_worker().
    [[nodiscard]] int fd() const { return own_.valid() ? own_.get() : typed_.read_end.get(); }
    [[nodiscard]] bool is_terminal() const { return typed_.read_end.valid(); }

  private:
    void pass_on();

    UniqueFd own_;  // not a terminal
    UniqueFd terminal_;
    Pipe typed_;
    Pipe wake_;
    SmallThread thread_;  // started last
};

// Adds the words by which the agent that such a program starts gives rank 0 its own stdin.
void add_stdin_words(std::vector<std::string>& words, const StdinForStarter& input);

}  // namespace dslaunch::launch

// Variables such as RANK and WORLD_SIZE that another launcher has set for processes of its own, or
// that are left over in a shell. A job of dslaunch numbers its ranks itself. One thread.
#pragma once

#include <string>

#include "launcher/options/machine.h"

namespace dslaunch::launcher {

// Returns a note that the variables of another launcher have no effect, if they say that this
// process is one of several ranks. Otherwise returns "". Variables that dslaunch has set for its
// own ranks do not count. Throws Error{kUsage} if torchrun or MPICH's mpirun started this process
// as one of several copies, because each copy would start the whole job.
[[nodiscard]] std::string foreign_ranks_note(const Machine& machine);

// Removes the variables of other launchers from this process's environment, and prints the note.
// Called before this process becomes a worker without other ranks. Keeps torchrun's variables,
// because the processes that torchrun starts become the ranks of one job.
void forget_foreign_ranks(const Machine& machine);

}  // namespace dslaunch::launcher

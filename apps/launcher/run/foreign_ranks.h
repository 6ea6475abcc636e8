// Variables such as RANK and WORLD_SIZE that another launcher has set for processes of its own, or
// that are left over in a shell. A job of dslaunch numbers its ranks itself. One thread.
#pragma once

#include <string>

#include "launcher/options/machine.h"

namespace dslaunch::launcher {

// Returns a note that such variables have no effect, if they name this process one of several
// ranks; otherwise "". Variables of a rank of dslaunch itself are not foreign. Throws Error{kUsage}
// if torchrun or MPICH's mpirun started this process as one of several copies, since each copy
// would start the whole job.
[[nodiscard]] std::string foreign_ranks_note(const Machine& machine);

// Removes such variables from this process's environment and prints the note, before this process
// becomes a worker without other ranks. Leaves the variables of torchrun, because its copies meet
// as ranks.
void forget_foreign_ranks(const Machine& machine);

}  // namespace dslaunch::launcher

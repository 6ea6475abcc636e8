// The launcher's own stdin for rank 0, where the launcher starts it on this machine, as deepspeed
// and torchrun hand it down. Nothing is read here, so that nothing is taken from a program that
// reads after this one.
#pragma once

#include "base/fd.h"

namespace dslaunch::launch {

// A copy of stdin, close-on-exec; not valid: it is closed, or a terminal that this process has in
// the background, whose input is another program's.
[[nodiscard]] UniqueFd stdin_for_worker();

}  // namespace dslaunch::launch

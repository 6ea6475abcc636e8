#include "launch/process/worker_stdin.h"

#include <fcntl.h>
#include <unistd.h>

namespace dslaunch::launch {

UniqueFd stdin_for_worker() {
    const bool is_terminal = ::isatty(STDIN_FILENO) == 1;
    if (is_terminal && ::tcgetpgrp(STDIN_FILENO) != ::getpgrp()) return {};
    return UniqueFd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
}

}  // namespace dslaunch::launch

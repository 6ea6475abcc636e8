// The relay's process: `dslaunch relay --stdio` on a host with many others behind it. It starts the
// agent of its own host and those of the hosts that it is told, through the same transports as the
// launcher, and carries bytes between them and whoever started it
// (launch/transport/tree/relay_messages.h). It reads nothing of what it carries, and decides
// nothing.
#pragma once

#include "launch/machine/launcher_lease.h"

namespace dslaunch::launch {

// Frames in on IN_FD, frames out on OUT_FD, both pipes or sockets. Returns the process's exit code
// when IN_FD is closed, or when nothing comes and LEASE is over: every agent behind it sees its own
// stdin close then, and ends what it has. At most kRelayWindowBytes of each agent wait here to be
// sent on. Throws Error when it cannot do what it is told.
[[nodiscard]] int run_relay(int in_fd, int out_fd, LauncherLease lease);

}  // namespace dslaunch::launch

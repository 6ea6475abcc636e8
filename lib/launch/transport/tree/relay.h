// The process of a relay: `dslaunch relay --stdio` on a host through which many others are reached.
// It starts the agents of its own host and of its subtree's hosts, and carries bytes unread between
// them and the process that started it (launch/transport/tree/relay_messages.h).
#pragma once

#include "launch/machine/launcher_silence.h"

namespace dslaunch::launch {

// Runs a relay: frames arrive on IN_FD and are sent on OUT_FD, both pipes or sockets. Returns the
// process's exit code when IN_FD is closed, or when nothing arrives and LEASE is over. The stdin of
// every agent of the relay is then closed, and the agents end. At most kRelayWindowBytes of each
// agent wait here to be forwarded. Throws Error if it cannot do its work.
[[nodiscard]] int run_relay(int in_fd, int out_fd, LauncherLease lease);

}  // namespace dslaunch::launch

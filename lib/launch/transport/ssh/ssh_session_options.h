// Gives the settings of a target to a libssh session.
#pragma once

#include <libssh/libssh.h>

#include <string>
#include <vector>

#include "launch/transport/ssh/ssh_target.h"

namespace dslaunch::launch {

// Sets SESSION's options for TARGET; libssh reads no configuration and no known_hosts file itself.
// KNOWN: the signature algorithms of the host's known keys, which are requested first. Returns the
// reason why libssh refuses a setting; empty if it takes all of them.
[[nodiscard]] std::string set_session_options(ssh_session session, const SshTarget& target,
                                              const std::vector<std::string>& known);

}  // namespace dslaunch::launch

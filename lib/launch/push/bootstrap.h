// Brings this dslaunch and its libraries to hosts that have none, or another one: an archive on the
// stdin of one constant command, which needs sh, tar, mkdir, mv and rm there. It appears whole or
// not at all.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launch/push/installation.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

// The command that the hosts' shells are given; ID (hexadecimal digits) makes its temporary folder
// its own. Throws Error{kUsage} as launcher_path().
[[nodiscard]] std::string bootstrap_command(const InstallationPaths& paths, const std::string& id);

// The archive of FILES, all of which lie below the prefix. Throws Error{kInput}.
[[nodiscard]] std::string bootstrap_archive(const InstallationPaths& paths,
                                            const std::vector<PushFile>& files);

// Sends FILES to HOSTS, eight at a time. One entry a host: why it failed, empty when it did not.
// SIGNAL_FD as in Fleet: Error{kInterrupted} after a signal. MAKE_TRANSPORT: a new one each time.
[[nodiscard]] std::vector<std::string> bootstrap_hosts(
    const std::vector<HostAddress>& hosts, const std::vector<PushFile>& files,
    const std::function<std::unique_ptr<Transport>()>& make_transport, int signal_fd);

}  // namespace dslaunch::launch

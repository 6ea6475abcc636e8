// The parts of dslaunch on a host: the programs, at the paths that they have here, and the
// libraries that they need, in ../lib/dslaunch beside the programs' folder, where they look first.
#pragma once

#include <string>
#include <vector>

#include "launch/push/push_sender.h"

namespace dslaunch::launch {

// The folders of the installation that this program belongs to.
struct InstallationPaths {
    std::string prefix;     // /opt/x of /opt/x/bin/dslaunch
    std::string programs;   // /opt/x/bin
    std::string libraries;  // /opt/x/lib/dslaunch
};
[[nodiscard]] InstallationPaths installation_paths();

// dslaunch itself and its libraries: what an agent needs. Throws Error{kSetup}: a library is
// missing here.
[[nodiscard]] std::vector<PushFile> agent_files();
// The agent's files and dsworker, its plugin for GPUs, and their libraries, as far as they are
// built. The plugin is for hosts with GPUs. If this machine lacks libraries of the plugin, it is
// left out, and NOTE tells that.
[[nodiscard]] std::vector<PushFile> installation_files(std::string& note);

}  // namespace dslaunch::launch

// Checks and writes configuration files of ssh. Such a file can name programs that are then started
// here (ProxyCommand), so neither the built-in ssh nor the ssh program gets a file that other users
// may write. Programs that run the ssh program themselves (pdsh, mpirun) get a file that is written
// here. No threads.
#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

// The origin of a configuration file, which decides who may write it.
enum class SshConfigOrigin {
    kGiven,   // named by the user: must exist; its group may write it, as ssh allows with -F
    kFound,   // ~/.ssh/config, or a file that another file includes
    kSystem,  // /etc/ssh/ssh_config: not checked, since its owner controls the machine
};

// Opens PATH for reading. If the file cannot be read, throws Error{kUsage} for kGiven and returns
// an invalid descriptor for the other origins. Throws Error{kUsage} if other users may write the
// file or if it is not a plain file. The check is about the opened file, so it holds even if PATH
// names another file later.
[[nodiscard]] UniqueFd open_ssh_config(const std::string& path, SshConfigOrigin origin);

// Checks the file of --ssh-config. The ssh program itself would accept the file even if other users
// may write it. Does nothing if PATH is "none" (no file) or empty; an empty PATH stands for the
// user's and the system's files, which the ssh program checks. Throws as open_ssh_config() does.
void require_own_ssh_config(const std::string& path);

// A configuration file for ssh. It contains the hostfile's facts about each host, then settings
// that keep ssh from asking anything, then the user's own configuration. The file exists only in
// memory, with a path below /proc, and disappears when the launcher ends in any way.
class SshOptionsFile {
  public:
    // A forwarding: ssh listens on a Unix socket on each host, and passes each connection to a
    // socket on this machine. If `there` is empty, nothing is forwarded.
    struct Forward {
        std::string there;  // beginning of the path on a host; on host 3, "-3" follows
        std::string here;
    };
    // Throws Error{kSetup} if no file can be created in memory, and Error{kUsage} if other users
    // may write SSH_CONFIG_PATH.
    SshOptionsFile(const std::vector<HostAddress>& hosts, const std::string& ssh_config_path,
                   const Forward& forward);

    // Returns a path for ssh's -F, which is valid while this object exists.
    [[nodiscard]] std::string path() const;

  private:
    UniqueFd file_;
};

// Returns the text of a file for ssh's -F, as SshOptionsFile creates it.
[[nodiscard]] std::string ssh_options_text(const std::vector<HostAddress>& hosts,
                                           const std::string& ssh_config_path,
                                           const SshOptionsFile::Forward& forward);

}  // namespace dslaunch::launch

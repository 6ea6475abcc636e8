// Files of the ssh configuration, which can name programs that are started here (ProxyCommand).
// Neither the built-in ssh nor the ssh program gets a file that other users may write. Also makes
// the configuration file for programs that run the ssh program themselves (pdsh, mpirun). No
// threads.
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

// Opens PATH for reading; the result is invalid if the user has not given the file and it cannot be
// read. Throws Error{kUsage} with the reason if a given file cannot be read, if the file is not a
// plain file, or if other users may write it. The check is about the opened file, so it holds even
// if PATH names another file later.
[[nodiscard]] UniqueFd open_ssh_config(const std::string& path, SshConfigOrigin origin);

// Checks the file of --ssh-config before it is passed to the ssh program, which would accept it
// even if other users may write it. Does nothing if PATH is empty (the user's and the system's
// files) or "none" (no file): the ssh program handles these itself. Throws as open_ssh_config()
// does.
void require_own_ssh_config(const std::string& path);

// A configuration file that contains the hostfile's facts about each host, settings that keep ssh
// from asking anything, then the user's own configuration. It exists only in memory, with a path
// below /proc: nothing is left of it after the launcher has ended in any way.
class SshOptionsFile {
  public:
    // A Unix socket on each host that is forwarded to a socket here; empty: none.
    struct Forward {
        std::string there;  // the beginning of its path, which is THERE-i on host i
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

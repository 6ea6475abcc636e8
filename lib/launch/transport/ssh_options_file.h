// Files of the ssh configuration, which name programs that are started here (ProxyCommand). Neither
// the built-in ssh nor the ssh program gets a file that others may write. Also the configuration
// for programs that run the ssh program themselves. No threads.
#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

enum class SshConfigOrigin {
    kGiven,   // named by the user: it must be there, and may be a group's, as ssh allows with -F
    kFound,   // ~/.ssh/config, or included by another
    kSystem,  // /etc/ssh/ssh_config: whoever owns it owns the machine
};

// Opens PATH for reading; invalid: it was not given and cannot be read. Throws Error{kUsage} with
// the reason: a given file that cannot be read, one that is not a plain file, one that others may
// write. It judges the opened file, whatever PATH names later.
[[nodiscard]] UniqueFd open_ssh_config(const std::string& path, SshConfigOrigin origin);

// Checks the file of --ssh-config before a program gets it, which takes it from anybody. The
// program handles the user's and the system's files (PATH is empty) and no file ("none") itself.
// Throws as open_ssh_config().
void require_own_ssh_config(const std::string& path);

// A configuration: the hostfile's facts about each host, settings that keep ssh from asking
// anything, then the user's own configuration. It lives in memory and has a path below /proc:
// nothing is left of it when the launcher is gone, however that ended.
class SshOptionsFile {
  public:
    // A Unix socket on each host that leads to one here; empty: none.
    struct Forward {
        std::string there;  // path; on host i THERE-i
        std::string here;
    };
    // Throws Error{kSetup}: no memory file; Error{kUsage}: others may write SSH_CONFIG_PATH.
    SshOptionsFile(const std::vector<HostAddress>& hosts, const std::string& ssh_config_path,
                   const Forward& forward);

    // Returns a path for ssh's -F; good while this object lives.
    [[nodiscard]] std::string path() const;

  private:
    UniqueFd file_;
};

// Returns the text of such a file.
[[nodiscard]] std::string ssh_options_text(const std::vector<HostAddress>& hosts,
                                           const std::string& ssh_config_path,
                                           const SshOptionsFile::Forward& forward);

}  // namespace dslaunch::launch

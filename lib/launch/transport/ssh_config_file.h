// Files of the ssh configuration, which name programs that are started here (ProxyCommand): one
// that others may write is not obeyed, whoever reads it, the built-in ssh or the ssh program. No
// threads.
#pragma once

#include <string>

#include "base/fd.h"

namespace dslaunch::launch {

enum class SshConfigOrigin {
    kGiven,   // named by the user: it must be there, and may be a group's, as ssh allows with -F
    kFound,   // ~/.ssh/config, or included by another
    kSystem,  // /etc/ssh/ssh_config: whoever owns it owns the machine
};

// Opens PATH for reading; invalid: it was not given and cannot be read. Throws Error{kUsage} with
// the reason: a given file that cannot be read, one that is no plain file, one that others may
// write. What is judged is the opened file, whatever PATH names later.
[[nodiscard]] UniqueFd open_ssh_config(const std::string& path, SshConfigOrigin origin);

// Called with what --ssh-config names before a program gets it, which takes it from anybody. The
// user's and the system's files (PATH is empty) and none at all ("none") are the program's matter.
// Throws as open_ssh_config().
void require_own_ssh_config(const std::string& path);

}  // namespace dslaunch::launch

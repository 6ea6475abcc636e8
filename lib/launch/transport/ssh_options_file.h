// The ssh configuration for programs that run the ssh program themselves (pdsh, mpirun): what the
// hostfile says of each host, what keeps ssh from asking anything, then the user's own
// configuration. It lives in memory and is named by a path below /proc: nothing is left of it when
// the launcher is gone, however that ended.
#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

class SshOptionsFile {
  public:
    // A Unix socket on each host that leads to one here; empty: none.
    struct Forward {
        std::string there;  // path; on host i THERE-i
        std::string here;
    };
    // Throws Error{kSetup}: no memory file; Error{kUsage}: others may write SSH_CONFIG_PATH
    // (ssh_config_file.h).
    SshOptionsFile(const std::vector<HostAddress>& hosts, const std::string& ssh_config_path,
                   const Forward& forward);

    // A path for ssh's -F; good while this object lives.
    [[nodiscard]] std::string path() const;

  private:
    UniqueFd file_;
};

// The text of such a file.
[[nodiscard]] std::string ssh_options_text(const std::vector<HostAddress>& hosts,
                                           const std::string& ssh_config_path,
                                           const SshOptionsFile::Forward& forward);

}  // namespace dslaunch::launch

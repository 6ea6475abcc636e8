// The indirect path of an ssh session whose host cannot be reached directly.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launch/transport/ssh/ssh_resolver.h"
#include "launch/transport/ssh/ssh_target.h"

namespace dslaunch::launch {

class SshSession;

// The indirect path of a session whose host cannot be reached directly. The path leads through the
// user's ProxyCommand, or through a channel of a session with another host (ProxyJump). The session
// with the other host may itself use an indirect path. The object connects the two SshSessions and
// runs in the same thread as both.
class SshWay {
  public:
    // Returns true if TARGET is reached through a command or through other hosts.
    [[nodiscard]] static bool is_needed(const SshTarget& target);
    // INDEX, CONFIG_PATH: see SshSession. TARGET must outlive this object. DEPTH: the number of
    // other indirect paths that need this path; 0 for the path to a host of the job.
    SshWay(size_t index, const SshTarget& target, const std::string& config_path, int depth);
    SshWay(const SshWay&) = delete;
    SshWay& operator=(const SshWay&) = delete;
    ~SshWay();  // ends the command or the session

    void begin(SshResolver& resolver);  // begins, or starts another attempt
    // take_addresses() passes the resolver's answer to the session with the other host. advance()
    // proceeds as far as possible now.
    void take_addresses(const ResolvedHost& resolved);
    void advance();
    // Returns a socket that leads to the host, or an invalid socket if the path is not open. Once a
    // valid socket was returned, later calls return an invalid one.
    [[nodiscard]] UniqueFd take_connection();
    // Returns the reason why the path could not be opened or has ended; empty: not known.
    [[nodiscard]] std::string failure();
    // Returns the reason after the connection has ended. Waits briefly, since a command ends a
    // little later than it closes the connection.
    [[nodiscard]] std::string failure_after_end();
    // Returns true after a failure that may mean only that the host closed the connection.
    [[nodiscard]] bool may_retry() const { return may_retry_; }

    // These functions do the same as the functions of SshSession with the same names.
    [[nodiscard]] bool waits_for_retry() const;
    void add_polls(std::vector<pollfd>& entries) const;
    [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> deadline() const;

  private:
    void start_command();
    void make_sockets();
    void carry();

    size_t index_;
    const SshTarget& target_;
    std::string config_path_;
    int depth_;
    std::string failure_;
    bool may_retry_ = false;
    UniqueFd connection_;  // the end that the session gets
    // for ProxyCommand
    pid_t command_ = -1;
    UniqueFd command_errors_;
    std::string last_words_;
    // for ProxyJump
    std::string jump_name_;
    std::unique_ptr<SshSession> jump_;
    UniqueFd tunnel_;     // the end that stays here
    std::string output_;  // output of the jump, for the session
};

}  // namespace dslaunch::launch

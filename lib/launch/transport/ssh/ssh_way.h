// The way of an ssh session to a host that it does not connect to itself: through the user's
// ProxyCommand, or through a channel of a session with another host (ProxyJump), which may itself
// go over another. Stands between two SshSessions; same thread as both.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launch/transport/ssh/ssh_resolver.h"
#include "launch/transport/ssh/ssh_target.h"

namespace dslaunch::launch {

class SshSession;

class SshWay {
  public:
    [[nodiscard]] static bool is_needed(const SshTarget& target);
    // TARGET must outlive this object. DEPTH: how many ways already lead here.
    SshWay(size_t index, const SshTarget& target, const std::string& config_path, int depth);
    SshWay(const SshWay&) = delete;
    SshWay& operator=(const SshWay&) = delete;
    ~SshWay();  // ends the command or the session

    void begin(SshResolver& resolver);  // begins, or tries again what waits for another attempt
    void take_addresses(const Resolved& resolved);
    void advance();
    // A socket that leads to the host, once; invalid while the way is not open.
    [[nodiscard]] UniqueFd take_connection();
    // The reason why there is no way, or no more; empty: none is known.
    [[nodiscard]] std::string failure();
    // The reason after the connection has ended: a command that closes it ends a moment later.
    [[nodiscard]] std::string failure_after_end();
    // True after a failure that may only mean that the host closed the connection.
    [[nodiscard]] bool may_retry() const { return may_retry_; }

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
    UniqueFd connection_;  // the session's end
    // ProxyCommand
    pid_t command_ = -1;
    UniqueFd command_errors_;
    std::string last_words_;
    // ProxyJump
    std::string jump_name_;
    std::unique_ptr<SshSession> jump_;
    UniqueFd tunnel_;     // our end
    std::string output_;  // output of the jump, for the session
};

}  // namespace dslaunch::launch

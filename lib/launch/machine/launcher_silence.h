// The rule that decides when a silent launcher is gone. An agent or a relay keeps working for a
// silent launcher for kLeaseMax, so that a stopped launcher (Ctrl-Z, SIGSTOP, a debugger) keeps its
// job. On the launcher's own machine, it keeps working without a limit. If the launcher's machine
// or the network to it is gone, the kernel has bytes that nobody has acknowledged. The agent then
// works only for kSilenceMax. TCP_INFO reports such bytes for our own socket. sock_diag(7) reports
// them for sshd's socket, to every user; if ssh goes through a jump host, that socket only leads to
// the jump host. A launcher that has ended closes its connection, which this file does not handle.
// One thread.
#pragma once

#include <linux/inet_diag.h>
#include <linux/netlink.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "launch/process/attention.h"

namespace dslaunch::launch {

// The kernel's view of the machine at the other end of a TCP connection.
struct ConnectionSigns {
    std::chrono::milliseconds since_acknowledgement{};
    uint32_t unacknowledged = 0;  // segments sent without an answer so far
    uint32_t probes = 0;          // probes of a full connection without an answer so far

    // Returns true if the other machine still answers. REQUIRES: something was sent within
    // SILENCE_MAX, unless the connection is full.
    [[nodiscard]] bool answers(std::chrono::milliseconds silence_max) const {
        return since_acknowledgement <= silence_max || (unacknowledged == 0 && probes <= 1);
    }
};

// Returns the signs of the TCP connection of FD; nothing if FD is not a TCP socket.
[[nodiscard]] std::optional<ConnectionSigns> signs_of_socket(int fd);
// Returns the signs of the connection that SSH_CONNECTION describes, in sshd's form "client-address
// client-port server-address server-port". Returns nothing if the text has another form or if the
// kernel shows no such connection.
[[nodiscard]] std::optional<ConnectionSigns> signs_of_ssh(std::string_view ssh_connection);

// The two parts of signs_of_ssh() that do not need the kernel: the request and the reading of the
// answer.
struct DiagRequest {
    nlmsghdr header;
    inet_diag_req_v2 body;
};
// Returns the request for the connection that SSH_CONNECTION describes; nothing if the text has
// another form.
[[nodiscard]] std::optional<DiagRequest> diag_request(std::string_view ssh_connection);
// Reads the message that begins with HEADER and has BYTES bytes, header included. Returns nothing
// if it is not an answer about a socket.
[[nodiscard]] std::optional<ConnectionSigns> signs_in_answer(const nlmsghdr* header, size_t bytes);

// The rule that decides, from a launcher's silence, whether the launcher is gone.
class LauncherLease {
  public:
    // Returns the lease for a launcher, or its relay, on this machine. This lease is never over,
    // since the pipe closes when the launcher ends.
    [[nodiscard]] static LauncherLease same_machine();
    // Returns the lease for a launcher at the other end of FD, a socket that outlives this object.
    [[nodiscard]] static LauncherLease over_socket(int fd);
    // Returns the lease for a process that sshd has started.
    [[nodiscard]] static LauncherLease over_ssh(std::string ssh_connection);

    // Returns the lease for a launcher at the other end of stdin: on this machine, or connected
    // through sshd.
    [[nodiscard]] static LauncherLease over_stdio(bool same_machine);

    // Returns the reason why the launcher must be considered gone; empty if it is not gone.
    // SILENCE: the time since the last byte from the launcher. REQUIRES: during the silence, this
    // side has sent something every few seconds.
    [[nodiscard]] std::string over(std::chrono::milliseconds silence) const;

  private:
    enum class Way : uint8_t { kSameMachine, kSocket, kSsh };
    LauncherLease(Way way, int fd, std::string ssh_connection)
        : way_(way), fd_(fd), ssh_connection_(std::move(ssh_connection)) {}

    Way way_;
    int fd_;
    std::string ssh_connection_;
};

// Measures the silence of a launcher for its agent or relay. Says how long the silence lasts, when
// this side must send a sign of life, and when the launcher is gone.
class LauncherSilence {
  public:
    using Time = std::chrono::steady_clock::time_point;

    // The silence begins now.
    explicit LauncherSilence(LauncherLease lease);

    // Ends the silence, because bytes have arrived from the launcher.
    void end(Time now) { last_input_ = now; }
    // Returns how long the silence lasts; the time for which this process was stopped does not
    // count. Call it several times a second.
    [[nodiscard]] std::chrono::milliseconds look(Time now);
    // Returns true if the caller is to send a sign of life now: at most once every kPingInterval.
    [[nodiscard]] bool sends_sign(Time now);
    // Returns the reason why a launcher that is silent for SILENCE must be considered gone; empty
    // if it is not gone. REQUIRES: signs of life were sent.
    [[nodiscard]] std::string over(std::chrono::milliseconds silence) const {
        return lease_.over(silence);
    }

  private:
    LauncherLease lease_;
    Attention attention_;
    Time last_input_;
    Time last_sign_;
};

}  // namespace dslaunch::launch

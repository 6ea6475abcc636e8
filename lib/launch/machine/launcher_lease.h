// An agent or a relay believes in a launcher that says nothing for kLeaseMax, so that one that was
// stopped (Ctrl-Z, SIGSTOP, a debugger) keeps its job; on the launcher's own machine without end.
// Only kSilenceMax when the launcher's machine or the network to it is gone: then the kernel knows
// of bytes that nobody has acknowledged. It tells of our own socket by TCP_INFO, and of sshd's by
// sock_diag(7), which shows it to everybody; after a jump host that is the jump host's word. A
// launcher that has ended closes its connection, which is no matter of this file. One thread.
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

namespace dslaunch::launch {

// The kernel has seen this of the other machine of a TCP connection.
struct ConnectionSigns {
    std::chrono::milliseconds since_acknowledgement{};
    uint32_t unacknowledged = 0;  // segments sent without an answer so far
    uint32_t probes = 0;          // probes of a full connection without an answer so far

    // REQUIRES: something was sent within SILENCE_MAX, unless the connection is full.
    [[nodiscard]] bool answers(std::chrono::milliseconds silence_max) const {
        return since_acknowledgement <= silence_max || (unacknowledged == 0 && probes <= 1);
    }
};

// Nothing: FD is no TCP socket.
[[nodiscard]] std::optional<ConnectionSigns> signs_of_socket(int fd);
// SSH_CONNECTION: "client-address client-port server-address server-port", as sshd sets it.
// Nothing: it is not written so, or the kernel shows no such connection.
[[nodiscard]] std::optional<ConnectionSigns> signs_of_ssh(std::string_view ssh_connection);

// The two halves of signs_of_ssh() beside the kernel.
struct DiagRequest {
    nlmsghdr header;
    inet_diag_req_v2 body;
};
[[nodiscard]] std::optional<DiagRequest> diag_request(std::string_view ssh_connection);
// HEADER has BYTES bytes behind it, its own included. Nothing: they are no answer about a socket.
[[nodiscard]] std::optional<ConnectionSigns> signs_in_answer(const nlmsghdr* header, size_t bytes);

class LauncherLease {
  public:
    // The launcher, or the relay that asks it, is on this machine: its end closes the pipe.
    [[nodiscard]] static LauncherLease same_machine();
    // The launcher is at the other end of FD, a socket that outlives this object.
    [[nodiscard]] static LauncherLease over_socket(int fd);
    // sshd has started this process.
    [[nodiscard]] static LauncherLease over_ssh(std::string ssh_connection);

    // The launcher is at the other end of stdin: on this machine, or behind sshd.
    [[nodiscard]] static LauncherLease over_stdio(bool same_machine);

    // SILENCE: the time without a byte from the launcher, during which this side has spoken every
    // few seconds. Returns why it is to be believed gone; empty: it is not.
    [[nodiscard]] std::string over(std::chrono::milliseconds silence) const;

  private:
    enum class Way : uint8_t { kSameMachine, kSocket, kSsh };
    LauncherLease(Way way, int fd, std::string ssh_connection)
        : way_(way), fd_(fd), ssh_connection_(std::move(ssh_connection)) {}

    Way way_;
    int fd_;
    std::string ssh_connection_;
};

}  // namespace dslaunch::launch

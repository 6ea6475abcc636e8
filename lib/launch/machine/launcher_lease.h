// An agent or a relay believes in a silent launcher for kLeaseMax, so that a stopped one (Ctrl-Z,
// SIGSTOP, a debugger) keeps its job; on the launcher's own machine for ever. It waits only
// kSilenceMax when the launcher's machine or the network to it is gone: then the kernel knows of
// bytes that nobody has acknowledged. TCP_INFO tells this of our own socket. sock_diag(7) tells it
// of sshd's socket to everybody; after a jump host it speaks of the jump host. A launcher that has
// ended closes its connection, which this file does not handle. One thread.
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

// The kernel's view of the other machine of a TCP connection.
struct ConnectionSigns {
    std::chrono::milliseconds since_acknowledgement{};
    uint32_t unacknowledged = 0;  // segments sent without an answer so far
    uint32_t probes = 0;          // probes of a full connection without an answer so far

    // REQUIRES: something was sent within SILENCE_MAX, unless the connection is full.
    [[nodiscard]] bool answers(std::chrono::milliseconds silence_max) const {
        return since_acknowledgement <= silence_max || (unacknowledged == 0 && probes <= 1);
    }
};

// Returns the signs of FD; nothing if it is not a TCP socket.
[[nodiscard]] std::optional<ConnectionSigns> signs_of_socket(int fd);
// Returns the signs of SSH_CONNECTION: "client-address client-port server-address server-port", as
// sshd sets it. Nothing if it has another form, or the kernel shows no such connection.
[[nodiscard]] std::optional<ConnectionSigns> signs_of_ssh(std::string_view ssh_connection);

// The two halves of signs_of_ssh() beside the kernel.
struct DiagRequest {
    nlmsghdr header;
    inet_diag_req_v2 body;
};
[[nodiscard]] std::optional<DiagRequest> diag_request(std::string_view ssh_connection);
// Reads HEADER of a message of BYTES bytes, its own included. Nothing: no answer about a socket.
[[nodiscard]] std::optional<ConnectionSigns> signs_in_answer(const nlmsghdr* header, size_t bytes);

class LauncherLease {
  public:
    // Returns the lease for a launcher, or its relay, on this machine: its end closes the pipe.
    [[nodiscard]] static LauncherLease same_machine();
    // Returns the lease for a launcher at the other end of FD, a socket that outlives this object.
    [[nodiscard]] static LauncherLease over_socket(int fd);
    // Returns the lease for a process that sshd has started.
    [[nodiscard]] static LauncherLease over_ssh(std::string ssh_connection);

    // Returns the lease for a launcher at the other end of stdin: on this machine, or beyond sshd.
    [[nodiscard]] static LauncherLease over_stdio(bool same_machine);

    // Returns why the launcher must be taken for gone; empty: it is not gone. SILENCE: the time
    // without a byte from it. This side has spoken every few seconds meanwhile.
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

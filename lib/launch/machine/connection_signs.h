// What the kernel has seen of the other machine of a TCP connection: of our own socket by TCP_INFO,
// of sshd's by sock_diag(7), which shows it to everybody; behind a jump host that is the jump
// host's word. No state; any thread.
#pragma once

#include <linux/inet_diag.h>
#include <linux/netlink.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

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

}  // namespace dslaunch::launch

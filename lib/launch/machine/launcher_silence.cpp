#include "launch/machine/launcher_silence.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "launch/process/timing.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;

ConnectionSigns signs_in(const tcp_info& info) {
    return {std::chrono::milliseconds(info.tcpi_last_ack_recv), info.tcpi_unacked,
            info.tcpi_probes};
}

// Returns the address family of TEXT and writes its bytes to ADDRESS; 0: not an address.
int read_address(std::string text, void* address) {
    text.resize(std::min(text.size(), text.find('%')));  // cuts off the scope in fe80::1%eth0
    if (::inet_pton(AF_INET, text.c_str(), address) == 1) return AF_INET;
    return ::inet_pton(AF_INET6, text.c_str(), address) == 1 ? AF_INET6 : 0;
}

}  // namespace

std::optional<DiagRequest> diag_request(std::string_view ssh_connection) {
    const std::vector<std::string> words = split(trim(ssh_connection), ' ');
    if (words.size() != 4) return std::nullopt;
    const auto client_port = parse_int(words[1]);
    const auto server_port = parse_int(words[3]);
    DiagRequest request{};
    inet_diag_sockid& id = request.body.id;
    const int family = read_address(words[0], id.idiag_dst);
    const auto is_port = [](const auto& port) { return port && *port >= 1 && *port <= 65'535; };
    if (family == 0 || read_address(words[2], id.idiag_src) != family || !is_port(client_port) ||
        !is_port(server_port)) {
        return std::nullopt;
    }
    id.idiag_dport = htons(static_cast<uint16_t>(*client_port));
    id.idiag_sport = htons(static_cast<uint16_t>(*server_port));
    id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    request.body.sdiag_family = static_cast<uint8_t>(family);
    request.body.sdiag_protocol = IPPROTO_TCP;
    request.body.idiag_ext = 1U << (INET_DIAG_INFO - 1);
    request.body.idiag_states = ~0U;
    request.header.nlmsg_len = sizeof request;
    request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    request.header.nlmsg_flags = NLM_F_REQUEST;
    return request;
}

std::optional<ConnectionSigns> signs_in_answer(const nlmsghdr* header, size_t bytes) {
    if (!NLMSG_OK(header, bytes) || header->nlmsg_type != SOCK_DIAG_BY_FAMILY) return std::nullopt;
    const auto* body = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
    auto left = static_cast<int>(header->nlmsg_len - NLMSG_LENGTH(sizeof *body));
    for (const auto* item = reinterpret_cast<const rtattr*>(body + 1); RTA_OK(item, left);
         item = RTA_NEXT(item, left)) {
        if (item->rta_type != INET_DIAG_INFO) continue;
        // An older kernel returns a shorter structure.
        tcp_info info{};
        std::memcpy(&info, RTA_DATA(item), std::min<size_t>(sizeof info, RTA_PAYLOAD(item)));
        return signs_in(info);
    }
    return std::nullopt;
}

std::optional<ConnectionSigns> signs_of_socket(int fd) {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return std::nullopt;
    return signs_in(info);
}

std::optional<ConnectionSigns> signs_of_ssh(std::string_view ssh_connection) {
    const auto request = diag_request(ssh_connection);
    if (!request) return std::nullopt;
    const UniqueFd socket(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    if (!socket.valid()) return std::nullopt;
    // The kernel has answered by the time send() returns.
    if (::send(socket.get(), &*request, sizeof *request, 0) != sizeof *request) return std::nullopt;
    alignas(nlmsghdr) char answer[4096];
    const ssize_t n = ::recv(socket.get(), answer, sizeof answer, MSG_DONTWAIT);
    if (n < static_cast<ssize_t>(sizeof(nlmsghdr))) return std::nullopt;
    return signs_in_answer(reinterpret_cast<const nlmsghdr*>(answer), static_cast<size_t>(n));
}

LauncherLease LauncherLease::same_machine() {
    return {Way::kSameMachine, -1, ""};
}

LauncherLease LauncherLease::over_socket(int fd) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof address;
    const bool is_unix = ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 &&
                         address.ss_family == AF_UNIX;
    return is_unix ? same_machine() : LauncherLease(Way::kSocket, fd, "");
}

LauncherLease LauncherLease::over_ssh(std::string ssh_connection) {
    return {Way::kSsh, -1, std::move(ssh_connection)};
}

LauncherLease LauncherLease::over_stdio(bool is_same_machine) {
    if (is_same_machine) return same_machine();
    const char* connection = std::getenv("SSH_CONNECTION");
    return over_ssh(connection == nullptr ? "" : connection);
}

std::string LauncherLease::over(milliseconds silence) const {
    if (way_ == Way::kSameMachine || silence <= kSilenceMax) return "";
    if (silence > kLeaseMax) {
        return fmt::format("the launcher has sent nothing for {} s",
                           to_milliseconds(kLeaseMax) / 1000);
    }
    const auto signs = way_ == Way::kSocket ? signs_of_socket(fd_) : signs_of_ssh(ssh_connection_);
    if (!signs || signs->answers(kSilenceMax)) return "";
    return fmt::format("the launcher has sent nothing for {} s, and its machine cannot be reached",
                       to_milliseconds(kSilenceMax) / 1000);
}

LauncherSilence::LauncherSilence(LauncherLease lease)
    : lease_(std::move(lease)),
      last_input_(std::chrono::steady_clock::now()),
      last_sign_(last_input_) {}

milliseconds LauncherSilence::look(Time now) {
    last_input_ += attention_.look(now);
    return std::chrono::floor<milliseconds>(now - last_input_);
}

bool LauncherSilence::sends_sign(Time now) {
    if (now - last_sign_ < kPingInterval) return false;
    last_sign_ = now;
    return true;
}

}  // namespace dslaunch::launch

#include "launch/machine/port_watch.h"

#include <fmt/format.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "base/fd.h"
#include "base/text.h"
#include "launch/process/process_tree.h"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSocketTableBytesMax = 64U << 20;
constexpr size_t kCommandBytesShown = 120;

// The sockets that listen on a port, as "socket:[INODE]", with the id of each one's user.
using Listeners = std::map<std::string, int64_t>;

// TCP_LISTEN of <netinet/tcp.h>, which cannot be included beside <linux/tcp.h>.
constexpr uint32_t kListening = 10;

struct ListenersRequest {
    nlmsghdr header;
    inet_diag_req_v2 body;
};

// Adds the sockets of FAMILY that listen on PORT to LISTENERS. Asks the kernel with sock_diag(7),
// which looks at listening sockets only. Returns false if this kernel or container does not answer.
bool add_diagnosed_listeners(uint8_t family, int port, Listeners& listeners) {
    const UniqueFd socket(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    ListenersRequest request{};
    request.header.nlmsg_len = sizeof request;
    request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    request.body.sdiag_family = family;
    request.body.sdiag_protocol = IPPROTO_TCP;
    request.body.idiag_states = 1U << kListening;
    if (!socket.valid() || ::send(socket.get(), &request, sizeof request, 0) != sizeof request)
        return false;
    for (;;) {
        // The kernel writes each part of its answer before recv() asks for it.
        alignas(nlmsghdr) char answer[32U << 10];
        ssize_t left = ::recv(socket.get(), answer, sizeof answer, MSG_DONTWAIT);
        if (left <= 0) return false;
        for (const auto* header = reinterpret_cast<const nlmsghdr*>(answer); NLMSG_OK(header, left);
             header = NLMSG_NEXT(header, left)) {
            if (header->nlmsg_type == NLMSG_DONE) return true;
            if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY) return false;
            const auto* body = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
            if (ntohs(body->id.idiag_sport) == port)
                listeners[fmt::format("socket:[{}]", body->idiag_inode)] = body->idiag_uid;
        }
    }
}

// Adds the sockets that listen on PORT according to TABLE, a file in /proc/net. The kernel needs
// some 4 ms for a table, since it looks at all sockets. A line contains: number, local address:port
// in hexadecimal, remote address, state (0A means that it listens), queues, timer, retransmits,
// user, timeout, inode.
void add_tabled_listeners(const char* table, int port, Listeners& listeners) {
    const std::string ending = fmt::format(":{:04X}", port);
    for (const std::string& line : split(text_or_empty(table, kSocketTableBytesMax), '\n')) {
        std::vector<std::string> fields = split(line, ' ');
        std::erase(fields, "");
        if (fields.size() < 10 || fields[3] != "0A" || !fields[1].ends_with(ending)) continue;
        if (const auto user = parse_int(fields[7]))
            listeners[fmt::format("socket:[{}]", fields[9])] = *user;
    }
}

// Returns all sockets that listen on PORT in this network namespace.
Listeners listeners_on(int port) {
    Listeners listeners;
    if (!add_diagnosed_listeners(AF_INET, port, listeners))
        add_tabled_listeners("/proc/self/net/tcp", port, listeners);
    if (!add_diagnosed_listeners(AF_INET6, port, listeners))
        add_tabled_listeners("/proc/self/net/tcp6", port, listeners);
    return listeners;
}

bool holds_one_of(const fs::path& process, const Listeners& sockets) {
    std::error_code error;
    for (fs::directory_iterator fd(process / "fd", error), end; !error && fd != end;
         fd.increment(error)) {
        std::error_code unread;  // set if the descriptor was closed meanwhile
        if (sockets.contains(fs::read_symlink(fd->path(), unread).string())) return true;
    }
    return false;
}

// The first pause between two checks. Most ranks listen soon; later checks become less and less
// frequent, because a check can take the kernel some 10 ms where sock_diag does not answer.
constexpr std::chrono::milliseconds kFirstPause{100};
constexpr std::chrono::milliseconds kLongestPause{1000};
constexpr std::chrono::seconds kPortWatchMax{60};

}  // namespace

std::set<int64_t> port_users(int port) {
    std::set<int64_t> users;
    for (const auto& [socket, user] : listeners_on(port)) users.insert(user);
    return users;
}

std::string describe_port_owner(int port) {
    const Listeners sockets = listeners_on(port);
    if (sockets.empty()) return {};
    for (const pid_t pid : all_processes()) {
        const std::string process = fmt::format("/proc/{}", pid);
        if (!holds_one_of(process, sockets)) continue;
        std::string command = text_or_empty(process + "/cmdline");
        while (command.ends_with('\0')) command.pop_back();
        std::replace(command.begin(), command.end(), '\0', ' ');
        return fmt::format("process {} ({})", pid,
                           printable(command.substr(0, kCommandBytesShown)));
    }
    return "a process of user " + user_name(static_cast<uid_t>(sockets.begin()->second));
}

void PortWatch::begin(int port, Time now) {
    port_ = port;
    pause_ = kFirstPause;
    next_look_ = now + pause_;
    end_ = now + kPortWatchMax;
}

std::string PortWatch::look(Time now) {
    if (now < next_look_) return "";
    const std::set<int64_t> users = port_users(port_);
    pause_ = std::min(2 * pause_, kLongestPause);
    next_look_ = users.empty() && now < end_ ? now + pause_ : Time::max();
    if (users.empty() || users.contains(::geteuid())) return "";
    return fmt::format(
        "port {} (MASTER_PORT) was taken by user {} before rank 0 could use it, so the ranks may "
        "have connected to that user's process. Treat all that they sent there as exposed, and "
        "start again with another --master_port",
        port_, user_name(static_cast<uid_t>(*users.begin())));
}

}  // namespace dslaunch::launch

#include "launch/machine/port_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "base/text.h"
#include "launch/process/process_tree.h"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSocketTableBytesMax = 64U << 20;
constexpr size_t kCommandBytesShown = 120;

// Returns every socket that listens on PORT, as "socket:[INODE]", with its user. A line of the
// kernel's table contains: number, local address:port in hexadecimal, remote address, state (0A
// means that it listens), queues, timer, retransmits, user, timeout, inode.
std::map<std::string, std::string> listening_sockets(int port) {
    const std::string ending = fmt::format(":{:04X}", port);
    std::map<std::string, std::string> sockets;
    for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
        for (const std::string& line : split(text_or_empty(table, kSocketTableBytesMax), '\n')) {
            std::vector<std::string> fields = split(line, ' ');
            std::erase(fields, "");
            if (fields.size() < 10 || fields[3] != "0A" || !fields[1].ends_with(ending)) continue;
            sockets[fmt::format("socket:[{}]", fields[9])] = fields[7];
        }
    }
    return sockets;
}

bool holds_one_of(const fs::path& process, const std::map<std::string, std::string>& sockets) {
    std::error_code error;
    for (fs::directory_iterator fd(process / "fd", error), end; !error && fd != end;
         fd.increment(error)) {
        std::error_code unread;  // set if the descriptor was closed meanwhile
        if (sockets.contains(fs::read_symlink(fd->path(), unread).string())) return true;
    }
    return false;
}

// The first pause between two checks. A check reads the table of all sockets, which takes the
// kernel some 10 ms. Most ranks listen soon; later checks become less and less frequent.
constexpr std::chrono::milliseconds kFirstPause{100};
constexpr std::chrono::milliseconds kLongestPause{1000};
constexpr std::chrono::seconds kPortWatchMax{60};

}  // namespace

std::set<int64_t> port_users(int port) {
    std::set<int64_t> users;
    for (const auto& [socket, user] : listening_sockets(port)) {
        if (const auto number = parse_int(user)) users.insert(*number);
    }
    return users;
}

std::string describe_port_owner(int port) {
    const std::map<std::string, std::string> sockets = listening_sockets(port);
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
    const auto user = parse_int(sockets.begin()->second);
    return "a process of user " + (user ? user_name(static_cast<uid_t>(*user)) : "unknown");
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

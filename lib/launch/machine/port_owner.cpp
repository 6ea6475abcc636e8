#include "launch/machine/port_owner.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "base/text.h"
#include "launch/machine/user_name.h"
#include "launch/process/process_facts.h"
#include "launch/process/text_or_empty.h"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

constexpr size_t kProcessTableBytesMax = 64U << 20;
constexpr size_t kCommandBytesShown = 120;

// Empty when it cannot be read: the process ended meanwhile, or belongs to somebody else.
std::string process_text(const std::string& path) {
    return text_or_empty(path, kProcessTableBytesMax);
}

// Every socket that listens on PORT, as "socket:[INODE]", with its user. A line of the table:
// number, local address:port in hexadecimal, remote one, state (0A listens), queues, timer,
// retransmits, user, timeout, inode.
std::map<std::string, std::string> listening_sockets(int port) {
    const std::string ending = fmt::format(":{:04X}", port);
    std::map<std::string, std::string> sockets;
    for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
        for (const std::string& line : split(process_text(table), '\n')) {
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
        std::error_code unread;  // closed meanwhile
        if (sockets.contains(fs::read_symlink(fd->path(), unread).string())) return true;
    }
    return false;
}

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
        std::string command = process_text(process + "/cmdline");
        while (command.ends_with('\0')) command.pop_back();
        std::replace(command.begin(), command.end(), '\0', ' ');
        return fmt::format("process {} ({})", pid,
                           printable(command.substr(0, kCommandBytesShown)));
    }
    const auto user = parse_int(sockets.begin()->second);
    return "a process of user " + (user ? user_name(static_cast<uid_t>(*user)) : "unknown");
}

}  // namespace dslaunch::launch

#include "launch/process/process_tree.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "launch/process/process_facts.h"

namespace dslaunch::launch {
namespace {

struct Stat {
    ProcessName name;
    pid_t parent = 0;
};

// Fields behind the last ')': the command's name may hold spaces and brackets.
std::optional<Stat> read_stat(pid_t pid) {
    std::string text;
    try {
        text = read_file(fmt::format("/proc/{}/stat", pid), 64U << 10);
    } catch (const Error&) {
        return std::nullopt;  // the process ended meanwhile
    }
    const size_t end = text.rfind(')');
    if (end == std::string::npos || end + 2 > text.size()) return std::nullopt;
    const auto fields = split(std::string_view(text).substr(end + 2), ' ');
    if (fields.size() < 20 || fields[0] == "Z" || fields[0] == "X") return std::nullopt;
    const auto parent = parse_int(fields[1]);
    const auto start = parse_int(fields[19]);
    if (!parent || !start) return std::nullopt;
    return Stat{{pid, static_cast<uint64_t>(*start)}, static_cast<pid_t>(*parent)};
}

// A process without children has no descendants: those of a child that ended go to whoever adopts
// them, which is the caller if it is a subreaper, and then they are its children.
bool has_children() {
    siginfo_t info{};
    return ::waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG | WNOWAIT) == 0 ||
           errno != ECHILD;
}

}  // namespace

std::vector<ProcessName> descendants(pid_t root) {
    // Reading all of /proc takes milliseconds: not when there is nothing to find.
    if (root == ::getpid() && !has_children()) return {};
    std::vector<Stat> all;
    for (const pid_t pid : all_processes())
        if (const auto stat = read_stat(pid)) all.push_back(*stat);
    std::vector<ProcessName> found;
    std::vector<pid_t> parents = {root};
    while (!parents.empty()) {
        const pid_t parent = parents.back();
        parents.pop_back();
        for (const Stat& stat : all) {
            if (stat.parent != parent) continue;
            found.push_back(stat.name);
            parents.push_back(stat.name.pid);
        }
    }
    return found;
}

std::set<pid_t> own_line() {
    std::set<pid_t> line;
    for (pid_t pid = ::getpid(); pid > 1 && line.insert(pid).second;) {
        const auto stat = read_stat(pid);
        pid = stat ? stat->parent : 0;
    }
    return line;
}

ProcessName name_process(pid_t pid) {
    const auto stat = read_stat(pid);
    return stat ? stat->name : ProcessName{pid, 0};
}

std::string describe_process(pid_t pid) {
    const auto read = [&](const char* name) {
        try {
            return read_file(fmt::format("/proc/{}/{}", pid, name), 64U << 10);
        } catch (const Error&) {
            return std::string();
        }
    };
    const std::string stat = read("stat");
    const size_t end = stat.rfind(')');
    const std::string name(trim(read("comm")));
    const char state = end != std::string::npos && end + 2 < stat.size() ? stat[end + 2] : '?';
    const std::string place(trim(read("wchan")));
    return fmt::format("{} ({}, state {}{})", pid, printable(name), state,
                       place.empty() || place == "0" ? "" : " in " + printable(place));
}

bool signal_process(const ProcessName& process, int signal_number) {
    const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
    if (!handle.valid() || name_process(process.pid) != process) return false;
    return ::syscall(SYS_pidfd_send_signal, handle.get(), signal_number, nullptr, 0) == 0;
}

}  // namespace dslaunch::launch

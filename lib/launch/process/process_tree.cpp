#include "launch/process/process_tree.h"

#include <dirent.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"

namespace dslaunch::launch {
namespace {

std::string process_file(pid_t pid, const char* name) {
    return text_or_empty(fmt::format("/proc/{}/{}", pid, name));
}

struct Stat {
    ProcessName name;
    pid_t parent = 0;
};

// Reads the fields after the last ')': the command's name may contain spaces and brackets.
std::optional<Stat> read_stat(pid_t pid) {
    const std::string text = process_file(pid, "stat");  // empty: the process ended meanwhile
    const size_t end = text.rfind(')');
    if (end == std::string::npos || end + 2 > text.size()) return std::nullopt;
    const auto fields = split(std::string_view(text).substr(end + 2), ' ');
    if (fields.size() < 20 || fields[0] == "Z" || fields[0] == "X") return std::nullopt;
    const auto parent = parse_int(fields[1]);
    const auto start = parse_int(fields[19]);
    if (!parent || !start) return std::nullopt;
    return Stat{{pid, static_cast<uint64_t>(*start)}, static_cast<pid_t>(*parent)};
}

// Returns true if this process has children. A subreaper without children has no descendants
// either, because it adopts the children of each child that ends.
bool has_children() {
    siginfo_t info{};
    return ::waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG | WNOWAIT) == 0 ||
           errno != ECHILD;
}

}  // namespace

std::string text_or_empty(const std::string& path, size_t bytes_max) {
    try {
        return read_file(path, bytes_max);
    } catch (const Error&) {
        return {};
    }
}

std::string value_in(std::string_view text, std::string_view name) {
    for (const std::string& line : split(text, '\n')) {
        const size_t colon = line.find(':');
        if (colon != std::string::npos && trim(line.substr(0, colon)) == name)
            return std::string(trim(line.substr(colon + 1)));
    }
    return {};
}

std::vector<ProcessName> descendants(pid_t root) {
    // Reading all of /proc takes milliseconds, so it is avoided if there is nothing to find.
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
    const std::string stat = process_file(pid, "stat");
    const size_t end = stat.rfind(')');
    const char state = end != std::string::npos && end + 2 < stat.size() ? stat[end + 2] : '?';
    const std::string place(trim(process_file(pid, "wchan")));
    return fmt::format("{} ({}, state {}{})", pid, printable(process_command(pid)), state,
                       place.empty() || place == "0" ? "" : " in " + printable(place));
}

bool signal_process(const ProcessName& process, int signal_number) {
    const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
    if (!handle.valid() || name_process(process.pid) != process) return false;
    return ::syscall(SYS_pidfd_send_signal, handle.get(), signal_number, nullptr, 0) == 0;
}

std::vector<pid_t> all_processes() {
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
    std::vector<pid_t> pids;
    while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr)
        if (const auto pid = parse_int(entry->d_name)) pids.push_back(static_cast<pid_t>(*pid));
    return pids;
}

std::optional<uid_t> process_owner(pid_t pid) {
    struct stat facts {};
    if (::stat(fmt::format("/proc/{}", pid).c_str(), &facts) != 0) return std::nullopt;
    return facts.st_uid;
}

std::string process_command(pid_t pid) {
    return std::string(trim(process_file(pid, "comm")));
}

EnvironmentList process_environment(pid_t pid) {
    EnvironmentList environment;
    for (const std::string& entry : split(process_file(pid, "environ"), '\0')) {
        const size_t equals = entry.find('=');
        if (equals != std::string::npos)
            environment.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
    }
    return environment;
}

std::string user_name(uid_t user) {
    constexpr size_t kEntryBytes = 16'384;
    passwd entry{};
    passwd* found = nullptr;
    std::vector<char> strings(kEntryBytes);
    if (::getpwuid_r(user, &entry, strings.data(), strings.size(), &found) == 0 && found != nullptr)
        return printable(entry.pw_name);
    return std::to_string(user);
}

}  // namespace dslaunch::launch

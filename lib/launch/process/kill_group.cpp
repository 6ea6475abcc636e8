#include "launch/process/kill_group.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/machine/control_group.h"
#include "base/text.h"
#include "launch/process/process_tree.h"
#include "launch/process/timing.h"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGroupPrefix = "dslaunch-";

// Returns the folder of the control group that this process was started in; empty if cgroup v2 is
// not mounted or not visible here.
fs::path first_group() {
    const std::string path =
        find_control_group(text_or_empty("/proc/self/cgroup"), "").value_or("");
    if (path.empty()) return {};
    // A line contains: number, parent, device, root, mount point, options, optional fields, "-",
    // file system type, …
    for (const std::string& line : split(text_or_empty("/proc/self/mountinfo"), '\n')) {
        const size_t end = line.find(" - cgroup2 ");
        const std::vector<std::string> fields = split(line.substr(0, end), ' ');
        if (end == std::string::npos || fields.size() < 5) continue;
        fs::path folder(fields[4]);
        if (path != "/") folder /= fs::path(path).relative_path();
        std::error_code error;
        if (parse_kill_group(folder.filename().string())) folder = folder.parent_path();
        if (fs::is_directory(folder, error)) return folder;
    }
    return {};
}

bool write_text(const fs::path& path, std::string_view text) {
    std::ofstream file(path);
    file << text << std::flush;
    return file.good();
}

struct FoundGroup {
    fs::path folder;
    KillGroupName name;
};

std::vector<FoundGroup> groups_in(const fs::path& folder) {
    std::vector<FoundGroup> found;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
        if (const auto name = parse_kill_group(entry->path().filename().string()))
            found.push_back({entry->path(), *name});
    }
    return found;
}

std::vector<fs::path> groups_before(const std::string& launch_id, int64_t attempt) {
    const fs::path own = first_group();
    if (own.empty() || launch_id.empty()) return {};
    std::vector<FoundGroup> all = groups_in(own);
    // Each sshd connection may have a group of its own; these groups are siblings.
    std::error_code error;
    for (fs::directory_iterator entry(own.parent_path(), error), end; !error && entry != end;
         entry.increment(error)) {
        std::error_code unread;
        if (entry->path() == own || !entry->is_directory(unread)) continue;
        for (FoundGroup& group : groups_in(*entry)) all.push_back(std::move(group));
    }
    std::vector<fs::path> before;
    for (FoundGroup& group : all) {
        if (group.name.launch_id == launch_id && group.name.attempt < attempt)
            before.push_back(std::move(group.folder));
    }
    return before;
}

sigset_t guarded_signals() {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1}) ::sigaddset(&set, number);
    return set;
}

int run_child(const std::function<int(int)>& body, pid_t guardian) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    // This process leaves the guardian's process group, which mpirun's daemon may kill as a whole.
    // The guardian or this process must survive to end the processes that the ranks started.
    ::setpgid(0, 0);
    if (::getppid() != guardian) return static_cast<int>(ExitCode::kInterrupted);
    const sigset_t set = guarded_signals();
    const UniqueFd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals.valid()) return static_cast<int>(ExitCode::kSetup);
    return body(signals.get());
}

int wait_for(pid_t child) {
    const sigset_t set = guarded_signals();
    for (;;) {
        int status = 0;
        const pid_t pid = ::waitpid(-1, &status, WNOHANG);
        if (pid == child) return exit_code_of(status);
        if (pid > 0) continue;
        siginfo_t info{};
        const int number = ::sigwaitinfo(&set, &info);
        if (number > 0 && number != SIGCHLD) ::kill(child, number);
    }
}

}  // namespace

std::string kill_group_name(const KillGroupName& name) {
    return fmt::format("{}{}-{}-{}", kGroupPrefix, name.launch_id, name.attempt, name.agent);
}

std::optional<KillGroupName> parse_kill_group(std::string_view text) {
    if (!text.starts_with(kGroupPrefix)) return std::nullopt;
    const size_t last = text.rfind('-');
    const size_t middle = text.rfind('-', last - 1);
    if (middle == std::string_view::npos || middle <= kGroupPrefix.size()) return std::nullopt;
    const auto attempt = parse_int(text.substr(middle + 1, last - middle - 1));
    const auto agent = parse_int(text.substr(last + 1));
    if (!attempt || !agent) return std::nullopt;
    const size_t id_bytes = middle - kGroupPrefix.size();
    return KillGroupName{std::string(text.substr(kGroupPrefix.size(), id_bytes)), *attempt, *agent};
}

bool enter_kill_group(const std::string& launch_id, int64_t attempt) {
    const fs::path own = first_group();
    // An id with a slash would name a different folder.
    if (own.empty() || launch_id.empty() || launch_id.find('/') != std::string::npos) return false;
    const fs::path folder = own / kill_group_name({launch_id, attempt, ::getpid()});
    std::error_code error;
    if (!fs::create_directory(folder, error)) return false;
    if (write_text(folder / "cgroup.procs", "0\n")) return true;
    fs::remove(folder, error);
    return false;
}

std::set<pid_t> kill_group_members(const std::string& launch_id, int64_t attempt) {
    std::set<pid_t> members;
    for (const fs::path& folder : groups_before(launch_id, attempt)) {
        for (const std::string& line : split(text_or_empty(folder / "cgroup.procs"), '\n')) {
            if (const auto pid = parse_int(line)) members.insert(static_cast<pid_t>(*pid));
        }
    }
    return members;
}

void kill_groups(const std::string& launch_id, int64_t attempt) {
    for (const fs::path& folder : groups_before(launch_id, attempt)) {
        write_text(folder / "cgroup.kill", "1\n");
        std::error_code error;
        fs::remove(folder, error);  // works once it is empty
    }
}

void remove_kill_group_of(pid_t agent) {
    const fs::path own = first_group();
    if (own.empty()) return;
    for (const FoundGroup& group : groups_in(own)) {
        std::error_code error;
        if (group.name.agent == agent) fs::remove(group.folder, error);
    }
}

bool kill_descendants(int limit_ms) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    for (;;) {
        while (::waitpid(-1, nullptr, WNOHANG) > 0) {
        }
        const auto left = descendants(::getpid());
        if (left.empty()) return true;
        if (std::chrono::steady_clock::now() > limit) return false;
        for (const ProcessName& process : left) signal_process(process, SIGKILL);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

int run_guarded(const std::function<int(int signal_fd)>& body) {
    ::signal(SIGPIPE, SIG_IGN);
    const sigset_t set = guarded_signals();
    sigset_t before;
    ::sigprocmask(SIG_BLOCK, &set, &before);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const pid_t guardian = ::getpid();
    const pid_t child = ::fork();
    if (child < 0) fail(ExitCode::kSetup, "cannot fork the agent: {}", errno_text(errno));
    if (child == 0) ::_exit(run_child(body, guardian));
    const int code = wait_for(child);
    // If the agent has ended by itself, it has already waited for processes that do not die, so the
    // limit is short. If a signal has ended it (a code over 128), the limit is long.
    const auto limit = code > 128 ? kUnkillableMax : kFarewellMax;
    kill_descendants(static_cast<int>(limit.count()));
    remove_kill_group_of(child);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    return code;
}

}  // namespace dslaunch::launch

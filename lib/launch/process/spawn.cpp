#include "launch/process/spawn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

extern char** environ;

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

enum class Stage : int { kParent, kFolder, kDescriptors, kProcessors, kExec };

struct Failure {
    Stage stage;
    int error_number;
};

// The data that the child needs. It is made before the fork, since after the fork only
// async-signal-safe calls are allowed.
struct Prepared {
    std::string path;
    std::vector<std::string> variables;
    std::vector<char*> argv;
    std::vector<char*> envp;
    std::vector<unsigned long> processor_mask;  // empty: not bound
    std::vector<unsigned long> node_mask;       // empty: memory from anywhere
};

constexpr size_t kBitsPerWord = sizeof(unsigned long) * CHAR_BIT;

void set_bit(std::vector<unsigned long>& mask, int number) {
    const auto bit = static_cast<size_t>(number);
    if (mask.size() <= bit / kBitsPerWord) mask.resize(bit / kBitsPerWord + 1);
    mask[bit / kBitsPerWord] |= 1UL << (bit % kBitsPerWord);
}

Prepared prepare(const SpawnRequest& request) {
    Prepared prepared;
    prepared.path =
        find_program(request.command.front(), request.environment, request.working_directory);
    for (const auto& [name, value] : request.environment) {
        prepared.variables.push_back(name + "=" + value);
    }
    for (const std::string& word : request.command) {
        prepared.argv.push_back(const_cast<char*>(word.c_str()));
    }
    for (const std::string& variable : prepared.variables) {
        prepared.envp.push_back(const_cast<char*>(variable.c_str()));
    }
    prepared.argv.push_back(nullptr);
    prepared.envp.push_back(nullptr);
    for (const int number : request.processors) set_bit(prepared.processor_mask, number);
    if (request.memory_node >= 0) set_bit(prepared.node_mask, request.memory_node);
    return prepared;
}

[[noreturn]] void give_up(int report_fd, Stage stage) {
    const Failure failure{stage, errno};
    const ssize_t n = ::write(report_fd, &failure, sizeof failure);
    ::_exit(n == sizeof failure ? 127 : 126);
}

void reset_signals() {
    for (int number = 1; number < NSIG; ++number) {
        if (number != SIGKILL && number != SIGSTOP) ::signal(number, SIG_DFL);
    }
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Moves the requested descriptors to 0, 1 and 2. First copies them to higher numbers, because a
// requested descriptor may be 0, 1 or 2 itself.
void place_standard_fds(const SpawnRequest& request, int report_fd) {
    const int null_fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    const int wanted[3] = {request.stdin_fd, request.stdout_fd, request.stderr_fd};
    int moved[3];
    for (int i = 0; i < 3; ++i) {
        moved[i] = ::fcntl(wanted[i] >= 0 ? wanted[i] : null_fd, F_DUPFD_CLOEXEC, 3);
        if (moved[i] < 0) give_up(report_fd, Stage::kDescriptors);
    }
    for (int i = 0; i < 3; ++i) {
        if (::dup2(moved[i], i) < 0) give_up(report_fd, Stage::kDescriptors);
    }
    for (const int fd : request.kept_fds) {
        if (::fcntl(fd, F_SETFD, 0) != 0) give_up(report_fd, Stage::kDescriptors);
    }
}

void bind_to(const Prepared& prepared, int report_fd) {
    const auto& processors = prepared.processor_mask;
    if (!processors.empty() &&
        ::sched_setaffinity(0, processors.size() * sizeof(unsigned long),
                            reinterpret_cast<const cpu_set_t*>(processors.data())) != 0) {
        give_up(report_fd, Stage::kProcessors);
    }
    const auto& nodes = prepared.node_mask;
    if (nodes.empty()) return;
    // The kernel ignores the last bit of the number of bits that it gets, so adds 1. A failure is
    // ignored, because it costs only speed; callers check earlier whether the kernel allows memory
    // policies.
    static_cast<void>(::syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes.data(),
                                nodes.size() * kBitsPerWord + 1));
}

[[noreturn]] void run_child(const SpawnRequest& request, const Prepared& prepared, int report_fd,
                            pid_t parent) {
    request.new_session ? ::setsid() : ::setpgid(0, 0);
    reset_signals();
    if (request.die_with_parent) {
        // The parent may have ended before prctl() took effect.
        if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) {
            give_up(report_fd, Stage::kParent);
        }
    }
    if (!request.working_directory.empty() && ::chdir(request.working_directory.c_str()) != 0) {
        give_up(report_fd, Stage::kFolder);
    }
    bind_to(prepared, report_fd);
    place_standard_fds(request, report_fd);
    ::execve(prepared.path.c_str(), prepared.argv.data(), prepared.envp.data());
    give_up(report_fd, Stage::kExec);
}

std::string failure_text(const SpawnRequest& request, const Prepared& prepared,
                         const Failure& failure) {
    switch (failure.stage) {
        case Stage::kParent:
            return "the agent ended before the program started";
        case Stage::kFolder:
            return fmt::format(
                "cannot enter the working directory {}: {}; give another with --chdir",
                request.working_directory, errno_text(failure.error_number));
        case Stage::kDescriptors:
            return fmt::format("cannot pass file descriptors to the program: {}",
                               errno_text(failure.error_number));
        case Stage::kProcessors:
            return fmt::format("cannot bind the program to its processors: {}; use --bind none",
                               errno_text(failure.error_number));
        case Stage::kExec:
            break;
    }
    return fmt::format("cannot execute {}: {}", prepared.path, errno_text(failure.error_number));
}

constexpr size_t kOutputBytesMax = 1U << 20;
constexpr milliseconds kDeathMax{100};

void reap(pid_t pid) {
    ::kill(-pid, SIGKILL);  // the process group, which has ended or has used up its time
    const auto limit = steady_clock::now() + kDeathMax;
    while (::waitpid(pid, nullptr, WNOHANG) == 0 && steady_clock::now() < limit) ::usleep(1'000);
}

}  // namespace

std::string find_program(const std::string& name, const EnvironmentList& environment,
                         const std::string& working_directory) {
    if (name.find('/') != std::string::npos) return name;
    const std::string* path = find_variable(environment, "PATH");
    for (const std::string& folder : split(path ? *path : "/usr/local/bin:/usr/bin:/bin", ':')) {
        std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
        if (candidate.front() != '/' && !working_directory.empty()) {
            candidate = working_directory + "/" + candidate;
        }
        struct stat status {};
        if (::stat(candidate.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
            ::access(candidate.c_str(), X_OK) == 0) {
            return candidate;
        }
    }
    return {};
}

SpawnResult spawn(const SpawnRequest& request) {
    DSL_CHECK(!request.command.empty(), "the command to start is empty");
    const Prepared prepared = prepare(request);
    if (prepared.path.empty()) {
        return {-1, fmt::format("program `{}` is not in the worker's PATH; give its path, or set "
                                "PATH with --env PATH=…",
                                printable(request.command.front()))};
    }
    Pipe report = make_pipe();
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) return {-1, fmt::format("cannot fork: {}", errno_text(errno))};
    if (pid == 0) run_child(request, prepared, report.write_end.get(), parent);
    // Parent and child both set the group, so that a signal to the group never comes too early.
    if (!request.new_session) ::setpgid(pid, pid);
    report.write_end.reset();
    Failure failure{};
    const auto bytes = std::as_writable_bytes(std::span(&failure, 1));
    if (read_full(report.read_end.get(), bytes) != static_cast<ssize_t>(sizeof failure)) {
        return {pid, {}};
    }
    wait_for_end(pid);
    const bool is_there = failure.stage == Stage::kExec && failure.error_number != ENOENT;
    return {-1, failure_text(request, prepared, failure), is_there ? 126 : 127};
}

EnvironmentList own_environment() {
    EnvironmentList list;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        const size_t equals = text.find('=');
        if (equals == std::string_view::npos) continue;
        list.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
    return list;
}

void set_variable(EnvironmentList& environment, const std::string& name, const std::string& value) {
    for (auto& [known, old] : environment) {
        if (known == name) {
            old = value;
            return;
        }
    }
    environment.emplace_back(name, value);
}

const std::string* find_variable(const EnvironmentList& environment, const std::string& name) {
    for (const auto& [known, value] : environment) {
        if (known == name) return &value;
    }
    return nullptr;
}

int exit_code_of(int status) {
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int wait_for_end(pid_t pid) {
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return exit_code_of(status);
}

std::optional<int> wait_or_kill(pid_t pid, milliseconds limit, bool is_group) {
    const auto end = steady_clock::now() + limit;
    int status = 0;
    while (::waitpid(pid, &status, WNOHANG) == 0) {
        if (steady_clock::now() > end) {
            ::kill(is_group ? -pid : pid, SIGKILL);
            wait_for_end(pid);
            return std::nullopt;
        }
        ::usleep(1'000);
    }
    return exit_code_of(status);
}

Sending send_now(int fd, std::string& outbox) {
    Sending sending = Sending::kDone;
    std::string_view left = outbox;
    while (sending == Sending::kDone && !left.empty()) {
        ssize_t n = ::send(fd, left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == ENOTSOCK) n = ::write(fd, left.data(), left.size());
        if (n > 0) left.remove_prefix(static_cast<size_t>(n));
        if (n < 0 && errno != EINTR) sending = errno == EAGAIN ? Sending::kLater : Sending::kGone;
    }
    outbox.erase(0, outbox.size() - left.size());
    return sending;
}

std::string signal_text(int signal_number) {
    const char* name = ::sigabbrev_np(signal_number);
    const char* words = ::sigdescr_np(signal_number);
    if (name == nullptr || words == nullptr) return fmt::format("signal {}", signal_number);
    return fmt::format("SIG{} ({})", name, words);
}

std::string program_output(const std::vector<std::string>& command, milliseconds limit) {
    Pipe pipe = make_pipe();
    SpawnRequest request;
    request.command = command;
    request.stdout_fd = request.stderr_fd = pipe.write_end.get();
    request.die_with_parent = true;
    const SpawnResult started = spawn(request);
    pipe.write_end.reset();
    if (!started.error.empty()) return "";
    const auto end = steady_clock::now() + limit;
    std::string text;
    bool has_ended = false;
    while (!has_ended && text.size() < kOutputBytesMax) {
        const auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now()).count();
        pollfd entry{pipe.read_end.get(), POLLIN, 0};
        if (left <= 0 || ::poll(&entry, 1, static_cast<int>(left)) <= 0) break;
        char block[4096];
        const ssize_t n = ::read(pipe.read_end.get(), block, sizeof block);
        has_ended = n <= 0;
        if (!has_ended) text.append(block, static_cast<size_t>(n));
    }
    reap(started.pid);
    return has_ended || text.size() >= kOutputBytesMax ? text : "";
}

int64_t soft_limit(decltype(RLIMIT_NOFILE) resource) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
    return static_cast<int64_t>(limit.rlim_cur);
}

size_t raise_descriptor_limit(size_t wanted) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::numeric_limits<size_t>::max();
    if (limit.rlim_cur >= wanted || limit.rlim_cur == limit.rlim_max) return limit.rlim_cur;
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return before;
    log_info("launch", "raised the limit on open files from {} to {}, because {} may be needed",
             before, limit.rlim_cur, wanted);
    return limit.rlim_cur;
}

}  // namespace dslaunch::launch

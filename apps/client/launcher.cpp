#include "dslaunch/launcher.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/error.h"
#include "base/fd.h"
#include "client/program.h"
#include "launch/process/spawn.h"

namespace dslaunch {

namespace {

// Opens FILE for appending. If FILE is empty, returns a copy of the descriptor OTHERWISE.
UniqueFd open_output(const std::string& file, int otherwise) {
    if (file.empty()) return UniqueFd(::fcntl(otherwise, F_DUPFD_CLOEXEC, 3));
    UniqueFd opened(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!opened.valid())
        fail(ExitCode::kDisk, "{}: cannot be written: {}", file, errno_text(errno));
    return opened;
}

}  // namespace

// The process of a launcher.
class Job::Process {
  public:
    explicit Process(pid_t pid) : pid_(pid) {}
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;
    ~Process() {
        if (code_) return;
        // Agents end the ranks as soon as their launcher is gone.
        ::kill(pid_, SIGKILL);
        launch::wait_for_end(pid_);
    }

    // Returns the exit code. With WNOHANG in FLAGS, returns nullopt if the process still runs.
    std::optional<int> look(int flags) {
        while (!code_) {
            int status = 0;
            const pid_t ended = ::waitpid(pid_, &status, flags);
            if (ended == 0) return std::nullopt;
            if (ended == pid_) {
                code_ = launch::exit_code_of(status);
            } else if (errno != EINTR) {
                code_ = -1;
                fail(ExitCode::kInternal,
                     "the exit status of process {} is lost: {}; this program must not ignore "
                     "SIGCHLD and must not wait for all its children",
                     pid_, errno_text(errno));
            }
        }
        return code_;
    }
    void signal(int number) const {
        if (!code_) ::kill(pid_, number);
    }
    [[nodiscard]] pid_t pid() const { return pid_; }

  private:
    pid_t pid_;
    std::optional<int> code_;
};

Job Job::start(const JobRequest& request) {
    if (request.target.empty())
        fail(ExitCode::kUsage, "JobRequest::target names no model, script or program");
    const UniqueFd out = open_output(request.stdout_file, STDOUT_FILENO);
    const UniqueFd err = open_output(request.stderr_file, STDERR_FILENO);
    launch::SpawnRequest spawn;
    spawn.command = {client::find_dslaunch(request.program)};
    spawn.command.insert(spawn.command.end(), request.options.begin(), request.options.end());
    spawn.command.push_back(request.target);
    spawn.command.insert(spawn.command.end(), request.arguments.begin(), request.arguments.end());
    for (const auto& [name, value] : request.environment)
        launch::set_variable(spawn.environment, name, value);
    spawn.stdout_fd = out.get();
    spawn.stderr_fd = err.get();
    const launch::SpawnResult started = launch::spawn(spawn);
    if (!started.error.empty()) fail(ExitCode::kSetup, "{}", started.error);
    return Job(std::make_unique<Process>(started.pid));
}

Job::Job(std::unique_ptr<Process> process) : process_(std::move(process)) {}
Job::Job(Job&&) noexcept = default;
Job::~Job() = default;

int Job::wait() {
    return process_->look(0).value();
}

std::optional<int> Job::wait_for(std::chrono::milliseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    for (;;) {
        const std::optional<int> code = process_->look(WNOHANG);
        if (code || std::chrono::steady_clock::now() >= end) return code;
        ::usleep(2'000);
    }
}

void Job::stop() {
    process_->signal(SIGTERM);
}

int Job::process() const {
    return process_->pid();
}

}  // namespace dslaunch

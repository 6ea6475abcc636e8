#include "launch/transport/join/starter_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/fd.h"
#include "base/text.h"
#include "launch/process/line_splitter.h"
#include "launch/process/spawn.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kKeptLines = 20;
constexpr milliseconds kEndByItself{2'000};
constexpr milliseconds kEndAfterTerm{1'000};

}  // namespace

struct StarterProcess::Stream {
    UniqueFd pipe;
    LineSplitter lines;
};

StarterProcess::StarterProcess(const AgentStarter& starter, const std::vector<HostAddress>& hosts,
                               const std::string& endpoint, const std::string& token) {
    Pipe out = make_pipe();
    Pipe err = make_pipe();
    SpawnRequest request;
    request.command = starter.command(hosts, endpoint);
    if (const int handed = starter.worker_stdin(); handed >= 0) {
        request.kept_fds.push_back(handed);
        request.command.insert(request.command.end(), {"--worker-stdin", std::to_string(handed)});
    }
    starter.prepare_environment(request.environment, token);
    request.stdin_fd = starter.own_stdin();
    request.stdout_fd = out.write_end.get();
    request.stderr_fd = err.write_end.get();
    request.die_with_parent = true;
    const SpawnResult result = spawn(request);
    pid_ = result.pid;
    if (pid_ < 0) {
        status_ = 127;
        keep(result.error);
        return;
    }
    for (Pipe* pipe : {&out, &err}) {
        auto stream = std::make_unique<Stream>();
        stream->pipe = std::move(pipe->read_end);
        const int fd = stream->pipe.get();
        set_blocking(fd, false);
        fds_.push_back(fd);
        streams_.push_back(std::move(stream));
    }
}

StarterProcess::~StarterProcess() {
    end();
}

void StarterProcess::keep(const std::string& line) {
    last_lines_.push_back(line);
    if (last_lines_.size() > kKeptLines) last_lines_.pop_front();
}

std::vector<std::string> StarterProcess::take_lines() {
    std::vector<std::string> lines;
    char block[kReadBytes];
    for (size_t i = 0; i < streams_.size(); ++i) {
        Stream& stream = *streams_[i];
        if (!stream.pipe.valid()) continue;
        const ssize_t n = ::read(stream.pipe.get(), block, sizeof block);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        std::string whole;
        if (n > 0) {
            whole = stream.lines.add(std::string_view(block, static_cast<size_t>(n)));
        } else {
            stream.pipe.reset();
            fds_[i] = -1;
            whole = stream.lines.finish();
        }
        for (std::string& line : split(whole, '\n')) {
            if (!line.empty() && line.back() == '\r') line.pop_back();
            if (trim(line).empty()) continue;
            keep(line);
            lines.push_back(std::move(line));
        }
    }
    return lines;
}

std::optional<int> StarterProcess::ended() {
    int status = 0;
    if (pid_ > 0 && ::waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        status_ = exit_code_of(status);
    }
    return status_;
}

void StarterProcess::end() {
    const pid_t group = pid_;
    const auto wait_for_it = [&](milliseconds limit) {
        const auto until = steady_clock::now() + limit;
        while (!ended() && steady_clock::now() < until) {
            static_cast<void>(take_lines());  // a program cannot end while its pipe is full
            std::this_thread::sleep_for(milliseconds(1));
        }
        return status_.has_value();
    };
    if (group <= 0 || wait_for_it(kEndByItself)) return;
    ::kill(-group, SIGTERM);
    if (wait_for_it(kEndAfterTerm)) return;
    ::kill(-group, SIGKILL);
    wait_for_it(kEndAfterTerm);
}

}  // namespace dslaunch::launch

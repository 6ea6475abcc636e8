#include "launch/transport/transport_process.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <thread>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "launch/process/blocking.h"
#include "launch/process/spawn.h"
#include "launch/transport/backoff.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kKeptLines = 20;
// A child that has closed its pipes ends at once; it is polled for until it has.
constexpr milliseconds kReapPoll{2};
// A child that was asked to end and has not is killed.
constexpr milliseconds kTermMax{500};

}  // namespace

ProcessTransport::~ProcessTransport() {
    // All are asked at once: one after the other a thousand of them would take minutes.
    for (Child& child : children_) {
        child.input.reset();
        child.output.reset();
        child.diagnostics.reset();
        if (child.pid >= 0) ::kill(child.pid, SIGTERM);
    }
    const auto limit = steady_clock::now() + kTermMax;
    for (Child& child : children_) {
        while (child.pid >= 0 && ::waitpid(child.pid, nullptr, WNOHANG) == 0) {
            if (steady_clock::now() > limit) {
                ::kill(child.pid, SIGKILL);
                ::waitpid(child.pid, nullptr, 0);
                break;
            }
            std::this_thread::sleep_for(milliseconds(1));
        }
    }
}

void ProcessTransport::start(const std::vector<HostAddress>& hosts) {
    for (const HostAddress& host : hosts) static_cast<void>(add(host));
}

size_t ProcessTransport::add(const HostAddress& host) {
    children_.emplace_back();
    children_.back().host = host;
    spawn_child(children_.size() - 1, early_events_);
    return children_.size() - 1;
}

void ProcessTransport::spawn_child(size_t index, std::vector<TransportEvent>& events) {
    Child& child = children_[index];
    Pipe in = make_pipe();
    Pipe out = make_pipe();
    Pipe err = make_pipe();
    SpawnRequest request;
    request.command = command(child.host);
    const int handed = worker_stdin(index);
    if (handed >= 0 && child.host.program == RemoteProgram::kAgent) {
        request.kept_fds.push_back(handed);
        request.command.insert(request.command.end(), {"--worker-stdin", std::to_string(handed)});
    }
    request.environment = own_environment();
    request.new_session = leaves_terminal();
    if (request.new_session) set_variable(request.environment, "SSH_ASKPASS_REQUIRE", "never");
    request.stdin_fd = in.read_end.get();
    request.stdout_fd = out.write_end.get();
    request.stderr_fd = err.write_end.get();
    const SpawnResult result = spawn(request);
    ++child.attempts;
    if (result.pid < 0) {
        child.ended = true;
        events.push_back({TransportEvent::Kind::kEnded, index, result.error, -1});
        return;
    }
    child.pid = result.pid;
    child.input = std::move(in.write_end);
    child.output = std::move(out.read_end);
    child.diagnostics = std::move(err.read_end);
    for (const int fd : {child.input.get(), child.output.get(), child.diagnostics.get()}) {
        set_blocking(fd, false);
    }
    child.outbox = child.sent_before;
    flush(child);
}

void ProcessTransport::send(size_t host, std::string_view bytes) {
    Child& child = children_[host];
    if (child.ended) return;
    if (!child.spoke) child.sent_before.append(bytes);
    if (child.retry_at) return;
    child.outbox.append(bytes);
    flush(child);
}

void ProcessTransport::flush(Child& child) {
    while (child.input.valid() && !child.outbox.empty()) {
        const ssize_t n = ::write(child.input.get(), child.outbox.data(), child.outbox.size());
        if (n > 0) {
            child.outbox.erase(0, static_cast<size_t>(n));
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            child.input.reset();  // the child's end is seen on the other pipes
        }
    }
    if (child.close_when_sent) child.input.reset();
}

void ProcessTransport::close_input(size_t host) {
    children_[host].close_when_sent = true;
    flush(children_[host]);
}

void ProcessTransport::abandon(size_t host) {
    Child& child = children_[host];
    child.abandoned = true;
    child.ended = true;
    child.retry_at.reset();
    child.input.reset();
    child.output.reset();
    child.diagnostics.reset();
    if (child.pid < 0) return;
    // SIGTERM: an agent takes its workers along, ssh closes the connection.
    ::kill(child.pid, SIGTERM);
    const auto limit = steady_clock::now() + kTermMax;
    while (::waitpid(child.pid, nullptr, WNOHANG) == 0) {
        if (steady_clock::now() > limit) {
            ::kill(child.pid, SIGKILL);
            ::waitpid(child.pid, nullptr, 0);
            break;
        }
        std::this_thread::sleep_for(milliseconds(1));
    }
    child.pid = -1;
}

void ProcessTransport::take_lines(size_t index, const std::string& lines,
                                  std::vector<TransportEvent>& events) {
    Child& child = children_[index];
    for (std::string& line : split(lines, '\n')) {
        if (line.empty()) continue;
        if (line.back() == '\r') line.pop_back();
        child.stderr_lines.push_back(line);
        if (child.stderr_lines.size() > kKeptLines) child.stderr_lines.pop_front();
        events.push_back({TransportEvent::Kind::kDiagnostic, index, line, -1});
    }
}

void ProcessTransport::read_from(size_t index, bool from_stdout,
                                 std::vector<TransportEvent>& events) {
    Child& child = children_[index];
    UniqueFd& pipe = from_stdout ? child.output : child.diagnostics;
    if (!pipe.valid()) return;
    char block[kReadBytes];
    const ssize_t n = ::read(pipe.get(), block, sizeof block);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) {
        pipe.reset();
        if (!from_stdout) take_lines(index, child.lines.finish(), events);
        return;
    }
    const std::string_view bytes(block, static_cast<size_t>(n));
    if (!from_stdout) return take_lines(index, child.lines.add(bytes), events);
    child.spoke = true;
    child.sent_before.clear();
    events.push_back({TransportEvent::Kind::kBytes, index, std::string(bytes), -1});
}

void ProcessTransport::reap(size_t index, std::vector<TransportEvent>& events) {
    Child& child = children_[index];
    int status = 0;
    if (child.pid < 0 || ::waitpid(child.pid, &status, WNOHANG) != child.pid) return;
    // The pipes hold what it said last; a child of its own (ssh's ControlMaster) may keep stderr
    // open.
    for (int round = 0; child.diagnostics.valid() && round < 4; ++round) {
        read_from(index, false, events);
    }
    child.pid = -1;
    child.input.reset();
    child.output.reset();
    child.diagnostics.reset();
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (!child.spoke && child.attempts < kConnectAttempts && may_retry(code, child.stderr_lines)) {
        child.retry_at = steady_clock::now() + backoff_delay(child.attempts);
        child.stderr_lines.clear();
        return;
    }
    child.ended = true;
    events.push_back(describe_end(index, code, child.stderr_lines));
}

void ProcessTransport::retry_due(std::vector<TransportEvent>& events) {
    for (size_t i = 0; i < children_.size(); ++i) {
        if (!children_[i].retry_at || *children_[i].retry_at > steady_clock::now()) continue;
        children_[i].retry_at.reset();
        spawn_child(i, events);
    }
}

int ProcessTransport::poll_timeout(milliseconds timeout) const {
    auto left = timeout;
    for (const Child& child : children_) {
        if (child.retry_at) {
            left = std::min(left, std::chrono::duration_cast<milliseconds>(*child.retry_at -
                                                                           steady_clock::now()) +
                                      milliseconds(1));
        } else if (!child.ended && !child.output.valid()) {
            left = std::min(left, kReapPoll);
        }
    }
    return static_cast<int>(std::max(left, milliseconds(0)).count());
}

std::vector<TransportEvent> ProcessTransport::wait(milliseconds timeout, int wake_fd) {
    std::vector<TransportEvent> events;
    events.swap(early_events_);
    if (!events.empty()) timeout = milliseconds(0);
    std::vector<pollfd> entries = {{wake_fd, POLLIN, 0}};
    for (const Child& child : children_) {
        const short writing = child.outbox.empty() ? 0 : POLLOUT;
        entries.push_back({writing != 0 ? child.input.get() : -1, writing, 0});
        entries.push_back({child.held ? -1 : child.output.get(), POLLIN, 0});
        entries.push_back({child.diagnostics.get(), POLLIN, 0});
    }
    if (::poll(entries.data(), entries.size(), poll_timeout(timeout)) < 0) {
        if (errno == EINTR) return events;
        fail(ExitCode::kInternal, "poll failed: {}", errno_text(errno));
    }
    for (size_t i = 0; i < children_.size(); ++i) {
        if (children_[i].ended) continue;
        if (entries[1 + 3 * i].revents != 0) flush(children_[i]);
        if (entries[2 + 3 * i].revents != 0) read_from(i, true, events);
        if (entries[3 + 3 * i].revents != 0) read_from(i, false, events);
        if (!children_[i].output.valid()) reap(i, events);
    }
    retry_due(events);
    return events;
}

}  // namespace dslaunch::launch

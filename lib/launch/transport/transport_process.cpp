// Agents as children of this process: on this machine, or on each host through the ssh program.
#include <fmt/format.h>
#include <poll.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "launch/process/line_splitter.h"
#include "launch/process/spawn.h"
#include "launch/process/stdin_for_starter.h"
#include "launch/transport/ssh_options_file.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kSshFailed = 255;
constexpr int kNotFound = 127;

constexpr size_t kKeptLines = 20;
// The pause between checks whether a child has ended. A child ends right after it closes its pipes.
constexpr milliseconds kReapPoll{2};
// The time after which a child that was asked to end is killed.
constexpr milliseconds kTermMax{500};

// The shared base of the local transport and the ssh transport: each host is a child process with
// pipes.
class ProcessTransport : public Transport {
  public:
    ~ProcessTransport() override;  // ends the children that still run, within a second
    void start(const std::vector<HostAddress>& hosts) override;
    void send(size_t host, std::string_view bytes) override;
    void close_input(size_t host) override;
    void abandon(size_t host) override;
    [[nodiscard]] size_t add(const HostAddress& host) override;
    void hold(size_t host, bool held) override { children_[host].held = held; }
    [[nodiscard]] std::vector<TransportEvent> wait(std::chrono::milliseconds timeout,
                                                   int wake_fd) override;

  protected:
    // Returns the command to execute for a host.
    [[nodiscard]] virtual std::vector<std::string> command(const HostAddress& host) const = 0;
    // Returns the kEnded event of a host. Its text gives the cause, taken from the child's status
    // and its last lines on stderr.
    [[nodiscard]] virtual TransportEvent describe_end(
        size_t host, int status, const std::deque<std::string>& stderr_lines) const = 0;
    // Returns the descriptor that becomes rank 0's stdin, if host INDEX runs rank 0; -1: none.
    [[nodiscard]] virtual int worker_stdin(size_t index) const {
        static_cast<void>(index);
        return -1;
    }
    // Returns true if the child must get no terminal, so that it cannot ask questions there.
    [[nodiscard]] virtual bool leaves_terminal() const { return false; }
    // Returns true if a child that ended this way, before its first byte arrived, should be started
    // again.
    [[nodiscard]] virtual bool may_retry(int status,
                                         const std::deque<std::string>& stderr_lines) const = 0;

  private:
    struct Child {
        HostAddress host;
        pid_t pid = -1;
        UniqueFd input;
        UniqueFd output;
        UniqueFd diagnostics;
        std::string outbox;
        bool close_when_sent = false;
        bool abandoned = false;
        bool ended = false;
        bool spoke = false;  // bytes arrived
        bool held = false;
        int attempts = 0;
        std::optional<std::chrono::steady_clock::time_point> retry_at;
        std::string sent_before;  // bytes already sent, which a retry sends again
        LineSplitter lines;
        std::deque<std::string> stderr_lines;
    };

    void spawn_child(size_t index, std::vector<TransportEvent>& events);
    void flush(Child& child);
    void read_from(size_t index, bool from_stdout, std::vector<TransportEvent>& events);
    void take_lines(size_t index, const std::string& lines, std::vector<TransportEvent>& events);
    void reap(size_t index, std::vector<TransportEvent>& events);
    void retry_due(std::vector<TransportEvent>& events);
    [[nodiscard]] int poll_timeout(std::chrono::milliseconds timeout) const;

    std::vector<Child> children_;
    std::vector<TransportEvent> early_events_;  // events of start(), which the next wait() returns
};

ProcessTransport::~ProcessTransport() {
    // All children get the request to end at the same time. A thousand children that end one after
    // another would take minutes.
    for (Child& child : children_) {
        child.input.reset();
        child.output.reset();
        child.diagnostics.reset();
        if (child.pid >= 0) ::kill(child.pid, SIGTERM);
    }
    const auto limit = steady_clock::now() + kTermMax;
    for (Child& child : children_) {
        const auto left = std::chrono::ceil<milliseconds>(limit - steady_clock::now());
        if (child.pid >= 0) wait_or_kill(child.pid, left);
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
    if (!child.input.valid()) return;
    const Sending sending = send_now(child.input.get(), child.outbox);
    // If the child no longer reads, its end is noticed on the other pipes.
    if (sending == Sending::kGone || (sending == Sending::kDone && child.close_when_sent))
        child.input.reset();
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
    // SIGTERM makes an agent end its workers, and makes ssh close the connection.
    ::kill(child.pid, SIGTERM);
    wait_or_kill(child.pid, kTermMax);
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
    // Reads the child's last output from the pipes. The rounds are limited, since a process that
    // the child has started (ssh's ControlMaster) may keep stderr open.
    for (int round = 0; child.diagnostics.valid() && round < 4; ++round) {
        read_from(index, false, events);
    }
    child.pid = -1;
    child.input.reset();
    child.output.reset();
    child.diagnostics.reset();
    const int code = exit_code_of(status);
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

class LocalTransport final : public ProcessTransport {
  public:
    explicit LocalTransport(bool hands_stdin)
        : stdin_(hands_stdin ? stdin_for_worker() : UniqueFd()) {}

  protected:
    std::vector<std::string> command(const HostAddress& host) const override {
        const bool is_relay = host.program == RemoteProgram::kRelay;
        return {"/proc/self/exe", is_relay ? "relay" : "agent", "--stdio", "--same-machine"};
    }
    TransportEvent describe_end(size_t host, int status,
                                const std::deque<std::string>& lines) const override {
        TransportEvent event{TransportEvent::Kind::kEnded, host, {}, status};
        if (status != 0) {
            event.text = fmt::format("its agent ended with {}{}", status,
                                     lines.empty() ? "" : ": " + lines.back());
        }
        return event;
    }
    bool may_retry(int, const std::deque<std::string>&) const override { return false; }
    int worker_stdin(size_t index) const override { return index == 0 ? stdin_.get() : -1; }

  private:
    UniqueFd stdin_;
};

// The transport over the ssh program: small, supports every option of the user's configuration, and
// is the reference for the libssh transport.
class OpenSshTransport final : public ProcessTransport {
  public:
    OpenSshTransport(const std::string& ssh_config_path, const std::vector<std::string>& arguments)
        : ssh_config_path_(ssh_config_path),
          arguments_(arguments),
          launcher_path_(launcher_path()) {}

  protected:
    std::vector<std::string> command(const HostAddress& host) const override {
        std::vector<std::string> words = {"ssh", "-T"};
        if (!ssh_config_path_.empty()) words.insert(words.end(), {"-F", ssh_config_path_});
        // If an option has several values, the ssh program uses the first.
        for (const char* option : {"BatchMode=yes", "StrictHostKeyChecking=yes"}) {
            words.insert(words.end(), {"-o", option});
        }
        words.insert(words.end(), arguments_.begin(), arguments_.end());
        for (const char* option :
             {"ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3",
              "ForwardAgent=no", "ClearAllForwardings=yes", "RemoteCommand=none", "RequestTTY=no",
              "LogLevel=ERROR"}) {
            words.insert(words.end(), {"-o", option});
        }
        if (host.port != 0) words.insert(words.end(), {"-p", std::to_string(host.port)});
        if (!host.user.empty()) words.insert(words.end(), {"-l", host.user});
        if (!host.address.empty()) {
            // The key is looked up under the host's name, but the connection is made to its
            // address.
            words.insert(words.end(),
                         {"-o", "HostName=" + host.address, "-o", "HostKeyAlias=" + host.name});
        }
        words.insert(words.end(), {"--", host.name, remote_command(launcher_path_, host)});
        return words;
    }

    TransportEvent describe_end(size_t host, int status,
                                const std::deque<std::string>& lines) const override {
        TransportEvent event{TransportEvent::Kind::kEnded, host, {}, status};
        if (status == kSshFailed || status == kNotFound) {
            for (const std::string& line : lines) {
                const std::string_view text = trim(line);
                // The box of at-signs around a changed host key carries no information.
                if (text.empty() || text.front() == '@') continue;
                if (!event.text.empty()) event.text += ' ';
                event.text.append(printable(text));
            }
        }
        if (status == kSshFailed) {
            event.exit_status = -1;
            if (event.text.empty()) event.text = "the ssh connection failed";
        }
        return event;
    }

    // BatchMode does not apply to the ssh of a ProxyJump or a ProxyCommand, so the terminal is
    // taken away.
    bool leaves_terminal() const override { return true; }

    bool may_retry(int status, const std::deque<std::string>& lines) const override {
        if (status != kSshFailed) return false;
        // The child is started again only if every line reports a broken connection. If the ssh of
        // a ProxyJump has failed, its own errors come first, and the attempt is not repeated.
        return !lines.empty() && std::all_of(lines.begin(), lines.end(), [](const auto& line) {
            return line.find("kex_exchange_identification") != std::string::npos ||
                   line.find("Connection reset by") != std::string::npos ||
                   line.find("Connection closed by") != std::string::npos;
        });
    }

  private:
    std::string ssh_config_path_;
    std::vector<std::string> arguments_;
    std::string launcher_path_;
};

}  // namespace

std::unique_ptr<Transport> make_local_transport(bool hands_stdin) {
    return std::make_unique<LocalTransport>(hands_stdin);
}

std::unique_ptr<Transport> make_openssh_transport(const std::string& ssh_config_path,
                                                  const std::vector<std::string>& arguments) {
    require_own_ssh_config(ssh_config_path);
    return std::make_unique<OpenSshTransport>(ssh_config_path, arguments);
}

}  // namespace dslaunch::launch

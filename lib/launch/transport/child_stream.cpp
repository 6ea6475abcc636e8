#include "launch/transport/child_stream.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/error.h"
#include "base/fd.h"
#include "launch/process/spawn.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kEndMax{500};

}  // namespace

ChildStream::ChildStream(const std::vector<std::string>& command) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        fail(ExitCode::kSetup, "cannot make a socket pair: {}", errno_text(errno));
    }
    socket_ = UniqueFd(ends[0]);
    const UniqueFd theirs(ends[1]);
    SpawnRequest request;
    request.command = command;
    request.environment = own_environment();
    request.stdin_fd = theirs.get();
    request.stdout_fd = theirs.get();
    request.stderr_fd = STDERR_FILENO;
    const SpawnResult result = spawn(request);
    if (result.pid < 0) fail(ExitCode::kSetup, "{}", result.error);
    pid_ = result.pid;
}

void ChildStream::send(std::string_view bytes) {
    if (!socket_.valid()) return;
    outbox_.append(bytes);
    flush();
}

void ChildStream::flush() {
    while (socket_.valid() && wants_to_write()) {
        const ssize_t n = ::send(socket_.get(), outbox_.data() + sent_, outbox_.size() - sent_,
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        // When it has closed its end, the reading side tells what it said last, and then its end.
        sent_ = n < 0 ? outbox_.size() : sent_ + static_cast<size_t>(n);
    }
    outbox_.clear();
    sent_ = 0;
    if (close_when_sent_ && socket_.valid()) ::shutdown(socket_.get(), SHUT_WR);
}

void ChildStream::close_input() {
    close_when_sent_ = true;
    flush();
}

std::string ChildStream::read_some() {
    std::string bytes(kReadBytes, '\0');
    for (;;) {
        const ssize_t n = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0 || (n < 0 && errno != EAGAIN)) socket_.reset();
        bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
        return bytes;
    }
}

int ChildStream::take_status() {
    const auto limit = steady_clock::now() + kEndMax;
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
        if (steady_clock::now() > limit) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
            return -1;
        }
        std::this_thread::sleep_for(milliseconds(1));
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace dslaunch::launch

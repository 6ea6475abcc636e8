#include "launch/transport/ssh/ssh_way.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "launch/process/spawn.h"
#include "launch/transport/ssh/ssh_session.h"

namespace dslaunch::launch {
namespace {

// While more than this many bytes are in transit in one direction, nothing more is read for it.
constexpr size_t kOnTheWayBytesMax = 1U << 20;
constexpr int kDepthMax = 8;
constexpr std::chrono::milliseconds kCommandEndMax{100};

}  // namespace

bool SshWay::is_needed(const SshTarget& target) {
    return !target.proxy_command.empty() || !target.jumps.empty();
}

SshWay::SshWay(size_t index, const SshTarget& target, const std::string& config_path, int depth)
    : index_(index), target_(target), config_path_(config_path), depth_(depth) {}

SshWay::~SshWay() {
    if (command_ <= 0) return;
    ::kill(-command_, SIGKILL);
    wait_for_end(command_);
}

void SshWay::begin(SshResolver& resolver) {
    if (jump_ != nullptr) return jump_->begin(resolver);
    if (!target_.proxy_command.empty()) return start_command();
    if (depth_ >= kDepthMax) {
        failure_ = fmt::format("ProxyJump goes through more than {} hosts", kDepthMax);
        return;
    }
    HostAddress last = target_.jumps.back();
    // The last host is reached through the hosts before it.
    std::vector<HostAddress> before(target_.jumps.begin(), target_.jumps.end() - 1);
    jump_name_ = last.name;
    jump_ = std::make_unique<SshSession>(
        index_, std::move(last), config_path_,
        SshPurpose{{}, target_.host_name, target_.port, std::move(before), depth_ + 1});
    jump_->begin(resolver);
}

void SshWay::make_sockets() {
    int pair[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        failure_ = "no socket pair: " + errno_text(errno);
        return;
    }
    connection_ = UniqueFd(pair[0]);
    tunnel_ = UniqueFd(pair[1]);
    for (const int fd : pair) set_blocking(fd, false);
}

void SshWay::start_command() {
    make_sockets();
    if (!failure_.empty()) return;
    // The command may not support non-blocking descriptors, so its end of the socket blocks.
    set_blocking(tunnel_.get(), true);
    Pipe errors = make_pipe();
    SpawnRequest request;
    request.command = {"/bin/sh", "-c", "exec " + target_.proxy_command};
    set_variable(request.environment, "SSH_ASKPASS_REQUIRE", "never");
    request.stdin_fd = tunnel_.get();
    request.stdout_fd = tunnel_.get();
    request.stderr_fd = errors.write_end.get();
    request.new_session = true;
    const SpawnResult child = spawn(request);
    tunnel_.reset();
    if (child.pid < 0) {
        failure_ = "ProxyCommand: " + child.error;
        return;
    }
    command_ = child.pid;
    command_errors_ = std::move(errors.read_end);
    set_blocking(command_errors_.get(), false);
}

void SshWay::take_addresses(const ResolvedHost& resolved) {
    if (jump_ != nullptr) jump_->take_addresses(resolved);
}

void SshWay::advance() {
    if (command_errors_.valid()) {
        char block[4096];
        const ssize_t n = ::read(command_errors_.get(), block, sizeof block);
        if (n > 0) last_words_.append(block, static_cast<size_t>(n));
        if (last_words_.size() > sizeof block) last_words_.erase(0, last_words_.size() - 4096);
        if (n == 0) command_errors_.reset();
    }
    if (jump_ == nullptr || !failure_.empty()) return;
    const bool was_open = jump_->is_open();
    std::vector<TransportEvent> events;
    jump_->hold(output_.size() > kOnTheWayBytesMax);
    jump_->advance(events);
    if (!was_open && jump_->is_open()) make_sockets();
    for (TransportEvent& event : events) {
        if (event.kind == TransportEvent::Kind::kBytes) output_ += event.text;
        if (event.kind != TransportEvent::Kind::kEnded) continue;
        may_retry_ = event.text.empty();
        failure_ = fmt::format("over {}: {}", jump_name_,
                               event.text.empty() ? "it closed the connection" : event.text);
    }
    carry();
}

void SshWay::carry() {
    // A failed send is ignored: it means that the session that uses this path has closed the other
    // end.
    if (tunnel_.valid()) static_cast<void>(send_now(tunnel_.get(), output_));
    char block[kReadBytes];
    while (tunnel_.valid() && failure_.empty() && jump_->unsent_bytes() < kOnTheWayBytesMax) {
        const ssize_t n = ::read(tunnel_.get(), block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        jump_->send(std::string_view(block, static_cast<size_t>(n)));
        jump_->flush();
    }
    // Closes this end. The session can still read the bytes that were sent before.
    if (!failure_.empty()) tunnel_.reset();
}

UniqueFd SshWay::take_connection() {
    return std::move(connection_);
}

std::string SshWay::failure() {
    advance();
    if (command_ > 0 && failure_.empty()) {
        int status = 0;
        if (::waitpid(command_, &status, WNOHANG) == command_) {
            command_ = -1;
            may_retry_ = status == 0;
            const std::string words(trim(last_words_));
            failure_ = fmt::format(
                "its ProxyCommand ended{}",
                words.empty() ? "" : ": " + printable(words.substr(words.rfind('\n') + 1)));
        }
    }
    return failure_;
}

std::string SshWay::failure_after_end() {
    const auto limit = std::chrono::steady_clock::now() + kCommandEndMax;
    while (failure().empty() && command_ > 0 && std::chrono::steady_clock::now() < limit)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return failure_;
}

bool SshWay::waits_for_retry() const {
    return jump_ != nullptr && jump_->waits_for_retry();
}

void SshWay::add_polls(std::vector<pollfd>& entries) const {
    if (jump_ == nullptr) return;
    jump_->add_polls(entries);
    if (!tunnel_.valid()) return;
    const bool reads = jump_->unsent_bytes() < kOnTheWayBytesMax;
    entries.push_back({tunnel_.get(),
                       static_cast<short>((reads ? POLLIN : 0) | (output_.empty() ? 0 : POLLOUT)),
                       0});
}

std::optional<std::chrono::steady_clock::time_point> SshWay::deadline() const {
    if (!failure_.empty()) return std::chrono::steady_clock::now();
    return jump_ == nullptr ? std::nullopt : jump_->deadline();
}

}  // namespace dslaunch::launch

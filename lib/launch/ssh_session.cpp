#include "launch/ssh_session.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "launch/backoff.h"

namespace dslaunch {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kConnectLimit{10};
constexpr std::chrono::seconds kHandshakeLimit{20};
constexpr std::chrono::seconds kStatusLimit{1};
constexpr size_t kReadBytes = 64U << 10;
// One session reads at most so much in a row.
constexpr int kBlocksPerRound = 4;
constexpr int kRoundsMax = 4;
constexpr int kDefaultPort = 22;

// libssh would otherwise let OpenSSL ask on the terminal for an old-style key's passphrase.
int refuse_passphrase(const char*, char*, size_t, int, int, void* locked) {
    *static_cast<bool*>(locked) = true;
    return -1;
}

// What libssh 0.10 makes of ProxyJump: the ssh program, but with the user's own configuration
// whatever --ssh-config says, and free to ask on the terminal.
bool is_proxy_jump(std::string_view command) {
    return command.starts_with("ssh ") && (command.find("-W '[%h]:%p'") != std::string::npos ||
                                           command.find("-W [%h]:%p") != std::string::npos);
}

std::string take_string(char* text) {
    std::string copy = text == nullptr ? "" : text;
    ssh_string_free_char(text);
    return copy;
}

std::string key_fingerprint(ssh_session session) {
    ssh_key key = nullptr;
    unsigned char* hash = nullptr;
    size_t length = 0;
    if (ssh_get_server_publickey(session, &key) != SSH_OK) return "unknown";
    std::string text = "unknown";
    if (ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &length) == 0) {
        text = take_string(ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, length));
        ssh_clean_pubkey_hash(&hash);
    }
    ssh_key_free(key);
    return text;
}

}  // namespace

SshSession::SshSession(size_t index, HostAddress host, std::string config_path, std::string command)
    : index_(index),
      host_(std::move(host)),
      config_path_(std::move(config_path)),
      command_(std::move(command)) {}

SshSession::~SshSession() {
    drop();
}

void SshSession::drop() {
    if (channel_ != nullptr) ssh_channel_free(std::exchange(channel_, nullptr));
    if (session_ != nullptr) ssh_free(std::exchange(session_, nullptr));
    socket_.reset();
}

std::string SshSession::session_error() const {
    return printable(ssh_get_error(session_));
}

void SshSession::end(const std::string& cause, int exit_status) {
    last_event_ = TransportEvent{TransportEvent::Kind::kEnded, index_, cause, exit_status};
    state_ = State::kEnded;
    drop();
}

void SshSession::abandon() {
    state_ = State::kEnded;
    last_event_.reset();
    drop();
}

bool SshSession::configure() {
    session_ = ssh_new();
    if (session_ == nullptr) return end("libssh cannot make a session"), false;
    const bool no = false;
    ssh_options_set(session_, SSH_OPTIONS_PROCESS_CONFIG, &no);
    if (ssh_options_set(session_, SSH_OPTIONS_HOST, host_.name.c_str()) != SSH_OK) {
        return end("libssh refuses the host name: " + session_error()), false;
    }
    const char* path = config_path_.empty() ? nullptr : config_path_.c_str();
    if (ssh_options_parse_config(session_, path) != SSH_OK) {
        return end(fmt::format("the ssh configuration {} cannot be read: {}", config_path_,
                               session_error())),
               false;
    }
    if (!host_.user.empty()) ssh_options_set(session_, SSH_OPTIONS_USER, host_.user.c_str());
    if (host_.port != 0) ssh_options_set(session_, SSH_OPTIONS_PORT, &host_.port);
    callbacks_ = {};
    callbacks_.userdata = &key_locked_;
    callbacks_.auth_function = refuse_passphrase;
    ssh_callbacks_init(&callbacks_);
    ssh_set_callbacks(session_, &callbacks_);
    ssh_set_blocking(session_, 0);
    return true;
}

void SshSession::begin(SshResolver& resolver) {
    drop();
    ++attempts_;
    connect_error_.clear();
    if (!configure()) return;
    char* text = nullptr;
    if (ssh_options_get(session_, SSH_OPTIONS_PROXYCOMMAND, &text) == SSH_OK) {
        const std::string proxy = take_string(text);
        if (is_proxy_jump(proxy)) {
            return end(
                "its ssh configuration says ProxyJump, which the built-in ssh does not do; give "
                "--launcher openssh");
        }
        if (!proxy.empty() && proxy != "none" && host_.address.empty()) {
            state_ = State::kHandshake;  // libssh starts the proxy itself
            deadline_ = steady_clock::now() + kHandshakeLimit;
            return;
        }
    }
    std::string target = host_.address;
    text = nullptr;
    if (target.empty() && ssh_options_get(session_, SSH_OPTIONS_HOST, &text) == SSH_OK) {
        target = take_string(text);
    }
    unsigned int port = 0;
    ssh_options_get_port(session_, &port);
    state_ = State::kResolving;
    deadline_ = steady_clock::now() + kConnectLimit;
    resolver.ask(index_, target, port == 0 ? kDefaultPort : static_cast<int>(port));
}

void SshSession::take_addresses(const Resolved& resolved) {
    if (state_ != State::kResolving) return;  // it was given up meanwhile
    if (!resolved.error.empty()) return end(resolved.error);
    addresses_ = resolved.addresses;
    next_address_ = addresses_.get();
    state_ = State::kConnecting;
    connect_next();
}

void SshSession::connect_next() {
    deadline_ = steady_clock::now() + kConnectLimit;
    for (; next_address_ != nullptr; next_address_ = next_address_->ai_next) {
        socket_ = UniqueFd(
            ::socket(next_address_->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (socket_.valid() &&
            (::connect(socket_.get(), next_address_->ai_addr, next_address_->ai_addrlen) == 0 ||
             errno == EINPROGRESS)) {
            next_address_ = next_address_->ai_next;
            return;
        }
        connect_error_ = errno_text(errno);
    }
    end("cannot connect: " + connect_error_ + "; does its sshd run, and is the port right?");
}

bool SshSession::finish_connect() {
    pollfd entry{socket_.get(), POLLOUT, 0};
    if (::poll(&entry, 1, 0) == 0) return false;
    int error_number = 0;
    socklen_t length = sizeof error_number;
    ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error_number, &length);
    if (error_number != 0) {
        connect_error_ = errno_text(error_number);
        connect_next();
        return true;
    }
    socket_t fd = socket_.release();  // the session closes it
    ssh_options_set(session_, SSH_OPTIONS_FD, &fd);
    state_ = State::kHandshake;
    deadline_ = steady_clock::now() + kHandshakeLimit;
    return true;
}

bool SshSession::handshake() {
    const int status = ssh_connect(session_);
    if (status == SSH_AGAIN) return false;
    if (status != SSH_OK) {
        // An sshd with too many connections at the door drops some before it says who it is.
        const std::string cause = session_error();
        if (ssh_get_serverbanner(session_) == nullptr && attempts_ < kConnectAttempts) {
            drop();
            state_ = State::kWaiting;
            deadline_ = steady_clock::now() + backoff_delay(attempts_);
            return false;
        }
        end("the ssh connection failed: " + cause);
        return true;
    }
    if (!check_host_key()) return true;
    state_ = State::kAuthentication;
    return true;
}

bool SshSession::check_host_key() {
    switch (ssh_session_is_known_server(session_)) {
        case SSH_KNOWN_HOSTS_OK:
            return true;
        case SSH_KNOWN_HOSTS_CHANGED:
        case SSH_KNOWN_HOSTS_OTHER:
            end(
                fmt::format("host key verification failed: its key {} is not the one in "
                            "known_hosts; if the host "
                            "was set up anew, remove the old key with `ssh-keygen -R {}`",
                            key_fingerprint(session_), host_.name));
            return false;
        case SSH_KNOWN_HOSTS_NOT_FOUND:
        case SSH_KNOWN_HOSTS_UNKNOWN:
            end(
                fmt::format("host key verification failed: its key {} is in no known_hosts file; "
                            "connect once with "
                            "`ssh {}` and compare it",
                            key_fingerprint(session_), host_.name));
            return false;
        case SSH_KNOWN_HOSTS_ERROR:
            break;
    }
    end("host key verification failed: " + session_error());
    return false;
}

bool SshSession::authenticate() {
    const int status = ssh_userauth_publickey_auto(session_, nullptr, nullptr);
    if (status == SSH_AUTH_AGAIN) return false;
    if (status == SSH_AUTH_SUCCESS) {
        state_ = State::kOpening;
    } else if (status == SSH_AUTH_ERROR) {
        end("authentication failed: " + session_error());
    } else {
        end(fmt::format("Permission denied: it accepts none of your keys{}",
                        key_locked_ ? " (one needs a passphrase: load it with ssh-add)" : ""));
    }
    return true;
}

bool SshSession::open_channel() {
    if (channel_ == nullptr) channel_ = ssh_channel_new(session_);
    if (channel_ == nullptr) return end("libssh cannot make a channel"), true;
    const int status = ssh_channel_open_session(channel_);
    if (status == SSH_AGAIN) return false;
    if (status != SSH_OK) return end("it opens no session: " + session_error()), true;
    state_ = State::kExec;
    return true;
}

bool SshSession::start_agent() {
    const int status = ssh_channel_request_exec(channel_, command_.c_str());
    if (status == SSH_AGAIN) return false;
    if (status != SSH_OK) return end("it runs no command: " + session_error()), true;
    state_ = State::kRunning;
    return true;
}

bool SshSession::step() {
    switch (state_) {
        case State::kConnecting:
            return finish_connect();
        case State::kHandshake:
            return handshake();
        case State::kAuthentication:
            return authenticate();
        case State::kOpening:
            return open_channel();
        case State::kExec:
            return start_agent();
        case State::kResolving:
        case State::kRunning:
        case State::kWaiting:
        case State::kEnded:
            break;
    }
    return false;
}

bool SshSession::read_stream(bool is_stderr, std::vector<TransportEvent>& events) {
    char block[kReadBytes];
    bool any = false;
    for (int i = 0; i < kBlocksPerRound; ++i) {
        const int n = ssh_channel_read_nonblocking(channel_, block, sizeof block, is_stderr);
        if (n <= 0) break;
        any = true;
        const std::string_view bytes(block, static_cast<size_t>(n));
        if (!is_stderr) {
            events.push_back({TransportEvent::Kind::kBytes, index_, std::string(bytes), -1});
            continue;
        }
        for (std::string& line : split(stderr_lines_.add(bytes), '\n')) {
            if (!line.empty()) {
                events.push_back({TransportEvent::Kind::kDiagnostic, index_, std::move(line), -1});
            }
        }
    }
    return any;
}

bool SshSession::read_all(std::vector<TransportEvent>& events) {
    for (int round = 0; round < kRoundsMax; ++round) {
        // Reading either stream takes packets of both from the socket.
        const bool any_output = !held_ && read_stream(false, events);
        if (!read_stream(true, events) && !any_output) return true;
    }
    return false;
}

void SshSession::write_outbox() {
    while (!outbox_.empty()) {
        const auto length = static_cast<uint32_t>(std::min(outbox_.size(), kReadBytes));
        const int n = ssh_channel_write(channel_, outbox_.data(), length);
        if (n <= 0) break;
        outbox_.erase(0, static_cast<size_t>(n));
    }
    if (outbox_.empty() && close_when_sent_ && !std::exchange(input_closed_, true)) {
        ssh_channel_send_eof(channel_);
    }
    ssh_blocking_flush(session_, 0);
}

void SshSession::carry(std::vector<TransportEvent>& events) {
    write_outbox();
    has_more_ = !read_all(events);
    if (has_more_ || held_) return;
    // libssh tells of a close late when data came with it: the end of the output and an exit status
    // are enough, and without a status the end of the output is after a second.
    const int exit_status = ssh_channel_get_exit_status(channel_);
    if (ssh_channel_is_eof(channel_) != 0 && !output_ended_) output_ended_ = steady_clock::now();
    const bool closed = ssh_channel_is_closed(channel_) != 0 ||
                        (output_ended_ &&
                         (exit_status >= 0 || steady_clock::now() > *output_ended_ + kStatusLimit));
    if (!closed && ssh_is_connected(session_) != 0) return;
    if (exit_status >= 0) return end({}, exit_status);
    const bool is_relay = host_.program == RemoteProgram::kRelay;
    end(!closed    ? "the ssh connection was lost"
        : is_relay ? "its relay ended without an exit status"
                   : "its agent ended without an exit status");
}

void SshSession::advance(std::vector<TransportEvent>& events) {
    if (state_ != State::kRunning && state_ != State::kEnded && state_ != State::kWaiting &&
        steady_clock::now() > deadline_) {
        if (state_ == State::kConnecting && next_address_ != nullptr) {
            connect_error_ = "no answer";
            connect_next();
        } else {
            end(state_ == State::kResolving    ? "its name is not resolved within 10 s"
                : state_ == State::kConnecting ? "cannot connect: no answer within 10 s"
                                               : "no ssh connection within 20 s");
        }
    }
    while (step()) {
    }
    if (state_ == State::kRunning) carry(events);
    if (last_event_) {
        events.push_back(std::move(*last_event_));
        last_event_.reset();
    }
}

int SshSession::fd() const {
    if (state_ == State::kConnecting) return socket_.get();
    if (session_ == nullptr || state_ == State::kResolving) return -1;
    return ssh_get_fd(session_);
}

short SshSession::events() const {
    if (state_ == State::kConnecting) return POLLOUT;
    const bool writes = (ssh_get_poll_flags(session_) & SSH_WRITE_PENDING) != 0;
    return static_cast<short>(POLLIN | (writes ? POLLOUT : 0));
}

std::optional<steady_clock::time_point> SshSession::deadline() const {
    if (last_event_ || (state_ == State::kRunning && has_more_)) return steady_clock::now();
    if (state_ == State::kRunning && output_ended_) return *output_ended_ + kStatusLimit;
    if (state_ == State::kEnded || state_ == State::kRunning) return std::nullopt;
    return deadline_;
}

}  // namespace dslaunch

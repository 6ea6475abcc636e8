#include "launch/transport/ssh/ssh_session.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "launch/network/interfaces.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kStatusLimit{1};
// The most blocks that one session reads in a row.
constexpr int kBlocksPerRound = 4;
constexpr int kRoundsMax = 4;

// Binds to ADDRESS before connecting; false with errno set.
bool bind_to(int fd, const std::string& address, int family) {
    if (address.empty()) return true;
    const auto list = look_up(address, 0, AI_NUMERICHOST | AI_PASSIVE, nullptr, family);
    if (list) return ::bind(fd, list->ai_addr, list->ai_addrlen) == 0;
    errno = EADDRNOTAVAIL;
    return false;
}

}  // namespace

SshSession::SshSession(size_t index, HostAddress host, std::string config_path, SshPurpose purpose,
                       int depth)
    : index_(index),
      host_(std::move(host)),
      config_path_(std::move(config_path)),
      purpose_(std::move(purpose)),
      depth_(depth) {}

SshSession::~SshSession() {
    drop();
}

void SshSession::drop() {
    authentication_.reset();
    if (channel_ != nullptr) ssh_channel_free(std::exchange(channel_, nullptr));
    unread_[0] = unread_[1] = false;
    if (session_ != nullptr) ssh_free(std::exchange(session_, nullptr));
    socket_.reset();
    way_.reset();
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

bool SshSession::read_configuration() {
    if (target_) return true;
    try {
        target_ = resolve_ssh_target(host_, config_path_);
    } catch (const Error& error) {
        end(error.what());
        return false;
    }
    if (!purpose_.jumps.empty()) {
        target_->jumps = purpose_.jumps;
        target_->proxy_command.clear();
    }
    known_hosts_.emplace(target_->known_hosts_files, target_->key_name);
    if (const std::string where = known_hosts_->only_authority(); !where.empty()) {
        end(
            fmt::format("{}: `@cert-authority` is not done by the built-in ssh, and no other line "
                        "has its key; give --launcher openssh",
                        where));
        return false;
    }
    return true;
}

bool SshSession::configure() {
    session_ = ssh_new();
    if (session_ == nullptr) return end("libssh cannot make a session"), false;
    const bool no = false;
    ssh_options_set(session_, SSH_OPTIONS_PROCESS_CONFIG, &no);
    if (ssh_options_set(session_, SSH_OPTIONS_HOST, target_->host_name.c_str()) != SSH_OK) {
        return end("libssh refuses the host name: " + session_error()), false;
    }
    ssh_options_set(session_, SSH_OPTIONS_USER, target_->user.c_str());
    ssh_options_set(session_, SSH_OPTIONS_PORT, &target_->port);
    // check_host_key() compares keys; libssh must read no file of its own choice.
    ssh_options_set(session_, SSH_OPTIONS_KNOWNHOSTS, "/dev/null");
    ssh_options_set(session_, SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/dev/null");
    if (!target_->agent_socket.empty()) {
        ssh_options_set(session_, SSH_OPTIONS_IDENTITY_AGENT, target_->agent_socket.c_str());
    }
    if (target_->compression) ssh_options_set(session_, SSH_OPTIONS_COMPRESSION, "yes");
    if (target_->rsa_bits_min > 0) {
        ssh_options_set(session_, SSH_OPTIONS_RSA_MIN_SIZE, &target_->rsa_bits_min);
    }
    if (target_->rekey_bytes > 0) {
        ssh_options_set(session_, SSH_OPTIONS_REKEY_DATA, &target_->rekey_bytes);
    }
    if (target_->rekey_s > 0) ssh_options_set(session_, SSH_OPTIONS_REKEY_TIME, &target_->rekey_s);
    ssh_set_blocking(session_, 0);
    return set_algorithms();
}

bool SshSession::set_algorithms() {
    // A server shows the key that is asked for first: ask for the known_hosts keys.
    std::vector<std::string> known = known_hosts_->algorithms();
    if (!known.empty()) {
        ssh_options_set(session_, SSH_OPTIONS_HOSTKEYS,
                        fmt::format("^{}", join(known, ",")).c_str());
    }
    for (const SshTarget::Algorithms& entry : target_->algorithms) {
        std::vector<ssh_options_e> options;
        if (entry.keyword == "ciphers") {
            options = {SSH_OPTIONS_CIPHERS_C_S, SSH_OPTIONS_CIPHERS_S_C};
        } else if (entry.keyword == "macs") {
            options = {SSH_OPTIONS_HMAC_C_S, SSH_OPTIONS_HMAC_S_C};
        } else if (entry.keyword == "kexalgorithms") {
            options = {SSH_OPTIONS_KEY_EXCHANGE};
        } else if (entry.keyword == "hostkeyalgorithms") {
            options = {SSH_OPTIONS_HOSTKEYS};
        } else {
            options = {SSH_OPTIONS_PUBLICKEY_ACCEPTED_TYPES};
        }
        for (const ssh_options_e option : options) {
            if (ssh_options_set(session_, option, entry.list.c_str()) == SSH_OK) continue;
            end(fmt::format("{}: libssh knows nothing of `{} {}`; give --launcher openssh",
                            entry.where, entry.keyword, printable(entry.list)));
            return false;
        }
    }
    return true;
}

void SshSession::begin(SshResolver& resolver) {
    if (state_ == State::kTunnel) return way_->begin(resolver);
    drop();
    ++attempts_;
    connect_error_.clear();
    if (!read_configuration() || !configure()) return;
    deadline_ = steady_clock::now() + target_->connect_max;
    if (SshWay::is_needed(*target_)) {
        way_ = std::make_unique<SshWay>(index_, *target_, config_path_, depth_);
        state_ = State::kTunnel;
        return way_->begin(resolver);
    }
    state_ = State::kResolving;
    resolver.ask(index_, target_->host_name, target_->port, target_->address_family);
}

void SshSession::take_addresses(const Resolved& resolved) {
    if (state_ == State::kTunnel) return way_->take_addresses(resolved);
    if (state_ != State::kResolving) return;  // the session was given up meanwhile
    if (!resolved.error.empty()) return end(resolved.error);
    addresses_ = resolved.addresses;
    next_address_ = addresses_.get();
    state_ = State::kConnecting;
    connect_next();
}

void SshSession::connect_next() {
    deadline_ = steady_clock::now() + target_->connect_max;
    for (; next_address_ != nullptr; next_address_ = next_address_->ai_next) {
        socket_ = UniqueFd(
            ::socket(next_address_->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (socket_.valid() &&
            bind_to(socket_.get(), target_->bind_address, next_address_->ai_family) &&
            (::connect(socket_.get(), next_address_->ai_addr, next_address_->ai_addrlen) == 0 ||
             errno == EINPROGRESS)) {
            next_address_ = next_address_->ai_next;
            return;
        }
        connect_error_ = errno_text(errno);
        if (!target_->bind_address.empty()) {
            connect_error_ += " (BindAddress " + printable(target_->bind_address) + ")";
        }
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
    shake_hands_over(std::move(socket_));
    return true;
}

void SshSession::shake_hands_over(UniqueFd connection) {
    socket_t fd = connection.release();  // the session closes it
    ssh_options_set(session_, SSH_OPTIONS_FD, &fd);
    state_ = State::kHandshake;
    deadline_ = steady_clock::now() + target_->connect_max;
}

bool SshSession::enter_tunnel() {
    if (const std::string failure = way_->failure(); !failure.empty()) return end(failure), true;
    UniqueFd connection = way_->take_connection();
    if (!connection.valid()) return false;
    shake_hands_over(std::move(connection));
    return true;
}

bool SshSession::handshake() {
    const int status = ssh_connect(session_);
    if (status == SSH_AGAIN) return false;
    if (status != SSH_OK) {
        // An sshd with too many connections at the door drops some before it says who it is.
        std::string cause = session_error();
        const bool way_failed = way_ != nullptr && !way_->failure_after_end().empty();
        if (way_failed) cause = way_->failure();
        const bool may_retry = !way_failed || way_->may_retry();
        const bool is_known = ssh_get_serverbanner(session_) != nullptr;
        if (may_retry && !is_known && attempts_ < kConnectAttempts) {
            drop();
            state_ = State::kWaiting;
            deadline_ = steady_clock::now() + backoff_delay(attempts_);
            return false;
        }
        if (!way_failed && !is_known)
            cause += fmt::format("; nobody there says that it is an sshd: is port {} right?",
                                 target_->port);
        end("the ssh connection failed: " + cause);
        return true;
    }
    if (!check_host_key()) return true;
    authentication_ = std::make_unique<SshAuthentication>(session_, *target_);
    state_ = State::kAuthentication;
    return true;
}

bool SshSession::check_host_key() {
    ssh_key key = nullptr;
    if (ssh_get_server_publickey(session_, &key) != SSH_OK) {
        end("host key verification failed: " + session_error());
        return false;
    }
    const std::string print = fingerprint_of(key);
    const KnownHosts::Verdict verdict = known_hosts_->judge(key);
    ssh_key_free(key);
    switch (verdict) {
        case KnownHosts::Verdict::kKnown:
            return true;
        case KnownHosts::Verdict::kRevoked:
            end(fmt::format("host key verification failed: its key {} is revoked at {}", print,
                            known_hosts_->where()));
            return false;
        case KnownHosts::Verdict::kChanged:
            end(
                fmt::format("host key verification failed: its key {} is not the one at {}; if the "
                            "host was installed again, remove the old key with `ssh-keygen -R {}`",
                            print, known_hosts_->where(), target_->key_name));
            return false;
        case KnownHosts::Verdict::kUnknown:
            break;
    }
    end(
        fmt::format("host key verification failed: its key {} is in no known_hosts file ({}); "
                    "connect once with `ssh {}` and compare it",
                    print, printable(join(target_->known_hosts_files, ", ")), host_.name));
    return false;
}

bool SshSession::authenticate() {
    switch (authentication_->step()) {
        case SshAuthentication::Result::kAgain:
            return false;
        case SshAuthentication::Result::kAccepted:
            state_ = State::kOpening;
            return true;
        case SshAuthentication::Result::kRefused:
            break;
    }
    end(authentication_->cause());
    return true;
}

bool SshSession::open_channel() {
    if (channel_ == nullptr) {
        channel_ = ssh_channel_new(session_);
        if (channel_ == nullptr) return end("libssh cannot make a channel"), true;
        channel_callbacks_ = {};
        ssh_callbacks_init(&channel_callbacks_);
        channel_callbacks_.userdata = this;
        channel_callbacks_.channel_data_function = note_data;
        ssh_set_channel_callbacks(channel_, &channel_callbacks_);
    }
    const bool forwards = !purpose_.forward_host.empty();
    const int status = forwards ? ssh_channel_open_forward(channel_, purpose_.forward_host.c_str(),
                                                           purpose_.forward_port, "127.0.0.1", 0)
                                : ssh_channel_open_session(channel_);
    if (status == SSH_AGAIN) return false;
    if (status != SSH_OK) {
        end(forwards ? fmt::format("it does not reach {}:{}: {}", purpose_.forward_host,
                                   purpose_.forward_port, session_error())
                     : "it opens no session: " + session_error());
        return true;
    }
    state_ = forwards ? State::kRunning : State::kExec;
    return true;
}

bool SshSession::start_agent() {
    const int status = ssh_channel_request_exec(channel_, purpose_.command.c_str());
    if (status == SSH_AGAIN) return false;
    if (status != SSH_OK) return end("it runs no command: " + session_error()), true;
    state_ = State::kRunning;
    return true;
}

bool SshSession::step() {
    switch (state_) {
        case State::kConnecting:
            return finish_connect();
        case State::kTunnel:
            return enter_tunnel();
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

int SshSession::note_data(ssh_session, ssh_channel, void*, uint32_t, int is_stderr, void* self) {
    static_cast<SshSession*>(self)->unread_[is_stderr != 0 ? 1 : 0] = true;
    return 0;  // taken: nothing
}

void SshSession::read_stream(bool is_stderr, std::vector<TransportEvent>& events) {
    char block[kReadBytes];
    for (int i = 0; i < kBlocksPerRound; ++i) {
        const int n = ssh_channel_read_nonblocking(channel_, block, sizeof block, is_stderr);
        if (n <= 0) {
            unread_[is_stderr ? 1 : 0] = false;
            return;
        }
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
}

void SshSession::read_all(std::vector<TransportEvent>& events) {
    for (int round = 0; round < kRoundsMax; ++round) {
        // Reading either stream takes packets of both from the socket.
        if (!held_) read_stream(false, events);
        read_stream(true, events);
        if (!has_unread()) return;
    }
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

void SshSession::flush() {
    if (is_open()) write_outbox();
}

void SshSession::carry(std::vector<TransportEvent>& events) {
    write_outbox();
    read_all(events);
    if (has_unread() || held_) return;
    // libssh tells of a close late when data came with it: the end of the output and an exit status
    // are enough, and without a status the end of the output is after a second.
    const int exit_status = ssh_channel_get_exit_status(channel_);  // takes packets as well
    if (has_unread()) return;
    if (ssh_channel_is_eof(channel_) != 0 && !output_ended_) output_ended_ = steady_clock::now();
    const bool closed = ssh_channel_is_closed(channel_) != 0 ||
                        (output_ended_ &&
                         (exit_status >= 0 || steady_clock::now() > *output_ended_ + kStatusLimit));
    if (!closed && ssh_is_connected(session_) != 0) return;
    if (exit_status >= 0) return end({}, exit_status);
    if (closed && !purpose_.forward_host.empty()) return end({});
    const bool is_relay = host_.program == RemoteProgram::kRelay;
    end(!closed    ? "the ssh connection was lost"
        : is_relay ? "its relay ended without an exit status"
                   : "its agent ended without an exit status");
}

void SshSession::check_deadline() {
    if (state_ == State::kRunning || state_ == State::kEnded || state_ == State::kWaiting ||
        state_ == State::kTunnel || steady_clock::now() <= deadline_) {
        return;
    }
    if (state_ == State::kConnecting && next_address_ != nullptr) {
        connect_error_ = "no answer";
        return connect_next();
    }
    const char* what = state_ == State::kResolving    ? "its name is not resolved"
                       : state_ == State::kConnecting ? "cannot connect: no answer"
                                                      : "no ssh connection";
    end(fmt::format("{} within {} s", what, target_->connect_max.count()));
}

void SshSession::advance(std::vector<TransportEvent>& events) {
    if (way_ != nullptr) way_->advance();
    check_deadline();
    while (step()) {
    }
    if (state_ == State::kRunning) carry(events);
    if (way_ != nullptr) way_->advance();  // forwards the bytes just written
    if (last_event_) {
        events.push_back(std::move(*last_event_));
        last_event_.reset();
    }
}

bool SshSession::waits_for_retry() const {
    if (state_ == State::kTunnel) return way_->waits_for_retry();
    return state_ == State::kWaiting;
}

void SshSession::add_polls(std::vector<pollfd>& entries) const {
    if (way_ != nullptr) way_->add_polls(entries);
    if (state_ == State::kConnecting) return entries.push_back({socket_.get(), POLLOUT, 0});
    if (session_ == nullptr || state_ == State::kResolving || state_ == State::kTunnel) return;
    const bool writes = (ssh_get_poll_flags(session_) & SSH_WRITE_PENDING) != 0;
    entries.push_back(
        {ssh_get_fd(session_), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
}

std::optional<steady_clock::time_point> SshSession::deadline() const {
    if (last_event_ || (state_ == State::kRunning && has_unread())) return steady_clock::now();
    if (state_ == State::kTunnel) return way_->deadline();
    if (state_ == State::kRunning && output_ended_) return *output_ended_ + kStatusLimit;
    if (state_ == State::kEnded || state_ == State::kRunning) return std::nullopt;
    return deadline_;
}

}  // namespace dslaunch::launch

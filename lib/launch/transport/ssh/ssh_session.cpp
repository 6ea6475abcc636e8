#include "launch/transport/ssh/ssh_session.h"

#include <fmt/format.h>
#include <poll.h>

#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "launch/transport/ssh/ssh_session_options.h"

namespace dslaunch::launch {

using std::chrono::steady_clock;

SshSession::SshSession(size_t index, HostAddress host, std::string config_path, SshPurpose purpose)
    : index_(index),
      host_(std::move(host)),
      config_path_(std::move(config_path)),
      purpose_(std::move(purpose)),
      channel_(index) {}

SshSession::~SshSession() {
    drop();
}

void SshSession::drop() {
    authentication_.reset();
    channel_.drop();
    if (session_ != nullptr) ssh_free(std::exchange(session_, nullptr));
    connector_.drop();
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
            fmt::format("{}: `@cert-authority` is not supported by the built-in ssh, and no other "
                        "line has the host's key; give --launcher openssh",
                        where));
        return false;
    }
    return true;
}

bool SshSession::configure() {
    session_ = ssh_new();
    if (session_ == nullptr) return end("libssh cannot create a session"), false;
    const std::string refusal = set_session_options(session_, *target_, known_hosts_->algorithms());
    if (!refusal.empty()) end(refusal);
    return refusal.empty();
}

void SshSession::begin(SshResolver& resolver) {
    if (state_ == State::kTunnel) return way_->begin(resolver);
    drop();
    ++attempts_;
    if (!read_configuration() || !configure()) return;
    deadline_ = steady_clock::now() + target_->connect_max;
    if (SshWay::is_needed(*target_)) {
        way_ = std::make_unique<SshWay>(index_, *target_, config_path_, purpose_.depth);
        state_ = State::kTunnel;
        return way_->begin(resolver);
    }
    state_ = State::kResolving;
    resolver.ask(index_, target_->host_name, target_->port, target_->address_family);
}

void SshSession::take_addresses(const ResolvedHost& resolved) {
    if (state_ == State::kTunnel) return way_->take_addresses(resolved);
    if (state_ != State::kResolving) return;  // the session was given up meanwhile
    if (!resolved.error.empty()) return end(resolved.error);
    connector_.begin(resolved.addresses, target_->bind_address);
    state_ = State::kConnecting;
    connect_next();
}

void SshSession::connect_next() {
    deadline_ = steady_clock::now() + target_->connect_max;
    if (connector_.try_next()) return;
    end(fmt::format("cannot connect: {}; does its sshd run, and is the port right?",
                    connector_.failure()));
}

bool SshSession::finish_connect() {
    const std::optional<int> result = connector_.result();
    if (!result) return false;
    if (*result != 0) {
        connect_next();
    } else {
        shake_hands_over(connector_.take_socket());
    }
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
        // If an sshd has too many unauthenticated connections, it drops some of them before it
        // identifies itself. Therefore the session tries again.
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
            cause +=
                fmt::format("; no ssh server answered there: is port {} right?", target_->port);
        end("the ssh connection failed: " + cause);
        return true;
    }
    const std::string objection = objection_to_host(session_, *known_hosts_, *target_, host_.name);
    if (!objection.empty()) return end(objection), true;
    authentication_ = std::make_unique<SshAuthentication>(session_, *target_);
    state_ = State::kAuthentication;
    return true;
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
    const int status = channel_.open(session_, purpose_);
    if (status == SSH_AGAIN) return false;
    const bool forwards = purpose_.forwards();
    if (status != SSH_OK) {
        end(forwards ? fmt::format("it cannot reach {}:{}: {}", purpose_.forward_host,
                                   purpose_.forward_port, session_error())
                     : "it did not open a session: " + session_error());
        return true;
    }
    state_ = forwards ? State::kRunning : State::kExec;
    return true;
}

bool SshSession::start_agent() {
    const int status = channel_.start(purpose_.command);
    if (status == SSH_AGAIN) return false;
    if (status != SSH_OK) return end("it did not run the command: " + session_error()), true;
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

void SshSession::flush() {
    if (is_open()) channel_.write_outbox();
}

void SshSession::carry(std::vector<TransportEvent>& events) {
    channel_.write_outbox();
    channel_.read(events);
    const std::optional<SshChannel::End> ended = channel_.end();
    if (!ended) return;
    if (ended->exit_status >= 0) return end({}, ended->exit_status);
    if (ended->is_closed && purpose_.forwards()) return end({});
    const bool is_relay = host_.program == RemoteProgram::kRelay;
    end(!ended->is_closed ? "the ssh connection was lost"
        : is_relay        ? "its relay ended without an exit status"
                          : "its agent ended without an exit status");
}

void SshSession::check_deadline() {
    if (state_ == State::kRunning || state_ == State::kEnded || state_ == State::kWaiting ||
        state_ == State::kTunnel || steady_clock::now() <= deadline_) {
        return;
    }
    if (state_ == State::kConnecting && connector_.has_next()) {
        connector_.set_failure("no answer");
        return connect_next();
    }
    const char* what = state_ == State::kResolving    ? "its name was not resolved"
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
    if (state_ == State::kConnecting) return entries.push_back({connector_.fd(), POLLOUT, 0});
    if (session_ == nullptr || state_ == State::kResolving || state_ == State::kTunnel) return;
    const bool writes = (ssh_get_poll_flags(session_) & SSH_WRITE_PENDING) != 0;
    entries.push_back(
        {ssh_get_fd(session_), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
}

std::optional<steady_clock::time_point> SshSession::deadline() const {
    if (last_event_) return steady_clock::now();
    if (state_ == State::kTunnel) return way_->deadline();
    if (state_ == State::kRunning) return channel_.deadline();
    if (state_ == State::kEnded) return std::nullopt;
    return deadline_;
}

}  // namespace dslaunch::launch

#include "launch/transport/join/transport_join.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <list>
#include <optional>

#include "base/check.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/plan/join_token.h"
#include "launch/process/spawn.h"
#include "launch/transport/join/join_handshake.h"
#include "launch/transport/join/starter_process.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;

constexpr size_t kKeptRefusals = 4;
constexpr size_t kShownNames = 8;
constexpr size_t kLinesOfHost = 3;
// The pause between checks whether the starter has ended. The starter ends right after it closes
// its pipes.
constexpr milliseconds kStarterReapPoll{5};
constexpr milliseconds kCountOfRefusalsPause{1'000};

struct Unproven {
    UniqueFd socket;
    LauncherHandshake handshake;
    std::string peer;
    TimePoint deadline;
};

struct Member {
    HostAddress host;
    UniqueFd socket;                        // invalid before the agent has joined and after it has
                                            // ended
    std::optional<JoinChannel> channel;     // absent before the agent has joined
    std::string waiting;                    // bytes to send when it has joined
    std::string came_from;                  // "10.0.0.2:41712 (pod-a)"; empty: not yet
    std::deque<std::string> starter_lines;  // the last lines about this host
    bool close_when_sent = false;
    bool ended = false;
};

// Returns the starter's lines about a host, the first line first.
std::string last_words(const Member& member) {
    return join(std::vector<std::string>(member.starter_lines.begin(), member.starter_lines.end()),
                "; ");
}

bool has_to_send(const Member& member) {
    return member.channel && !member.channel->to_connection().empty();
}

class JoinTransport final : public Transport {
  public:
    explicit JoinTransport(JoinSettings settings)
        : settings_(std::move(settings)),
          clock_(settings_.clock == nullptr ? system_clock_ : *settings_.clock) {}

    void start(const std::vector<HostAddress>& hosts) override;
    void send(size_t host, std::string_view bytes) override;
    void close_input(size_t host) override;
    void abandon(size_t host) override;
    std::vector<TransportEvent> wait(milliseconds timeout, int wake_fd) override;

  private:
    using Events = std::vector<TransportEvent>;

    void listen();
    void accept_all();
    void serve(Unproven& connection);
    void drop_late();
    void admit(Unproven& connection);
    std::optional<size_t> choose_host(const JoinIdentity& identity, std::string& reason) const;
    void note_refusal(const std::string& peer, const std::string& reason);
    void flush(Member& member);
    void read_from(size_t host, Events& events);
    void take_starter_lines(Events& events);
    void look_after_starter(Events& events);
    void give_up_late_hosts(Events& events);
    void end_host(size_t host, std::string cause, Events& events, int exit_status = -1);
    void close_when_complete();
    [[nodiscard]] bool is_missing(size_t host) const;
    [[nodiscard]] std::string who_came() const;
    [[nodiscard]] milliseconds poll_time(milliseconds timeout) const;

    JoinSettings settings_;
    SystemClock system_clock_;
    const Clock& clock_;  // system_clock_, or the clock of the settings
    JoinKey key_;
    std::optional<JoinListener> listener_;
    std::unique_ptr<StarterProcess> starter_;
    bool starter_over_ = false;
    std::vector<HostAddress> hosts_;
    std::vector<Member> members_;
    size_t joined_count_ = 0;
    std::list<Unproven> unproven_;
    std::deque<std::string> refusals_;
    size_t refusal_count_ = 0;
    TimePoint refusal_logged_;
    TimePoint deadline_;
};

void JoinTransport::listen() {
    const JoinEndpoint& wanted = settings_.endpoint;
    if (!wanted.is_unix() && wanted.host.empty()) {
        listener_.emplace(JoinListener::in_private_folder());
    } else {
        listener_.emplace(wanted);
    }
    DSL_CHECK(listener_->endpoint().is_unix() || settings_.token.size() >= kTokenBytesMin,
              "listening on TCP needs a token");
    key_ = JoinKey(settings_.token);
}

void JoinTransport::start(const std::vector<HostAddress>& hosts) {
    hosts_ = hosts;
    for (const HostAddress& host : hosts) {
        members_.emplace_back();
        members_.back().host = host;
    }
    listen();
    deadline_ = clock_.now() + settings_.join_max;
    const std::string endpoint = listener_->endpoint().text();
    if (settings_.announce) {
        log_info("launch", "waiting for {} on {} for {} s", counted(std::ssize(hosts), "agent"),
                 endpoint, std::chrono::duration<double>(settings_.join_max).count());
    }
    if (settings_.starter) {
        starter_ =
            std::make_unique<StarterProcess>(*settings_.starter, hosts, endpoint, settings_.token);
    }
}

void JoinTransport::send(size_t host, std::string_view bytes) {
    Member& member = members_[host];
    if (member.ended) return;
    if (!member.channel) {
        member.waiting.append(bytes);
        return;
    }
    member.channel->say(bytes);
    flush(member);
}

void JoinTransport::close_input(size_t host) {
    members_[host].close_when_sent = true;
    flush(members_[host]);
}

void JoinTransport::abandon(size_t host) {
    members_[host].ended = true;
    members_[host].socket.reset();
    members_[host].waiting.clear();
    close_when_complete();
}

void JoinTransport::flush(Member& member) {
    if (!member.socket.valid()) return;
    std::string& outbox = member.channel->to_connection();
    const Sending sending = send_now(member.socket.get(), outbox);
    if (sending == Sending::kLater) return;
    // A member that has gone is reported by the next read from it.
    if (sending == Sending::kGone) outbox.clear();
    if (member.close_when_sent) {
        ::shutdown(member.socket.get(), SHUT_WR);
        member.close_when_sent = false;
    }
}

void JoinTransport::accept_all() {
    while (listener_ && listener_->fd() >= 0) {
        UniqueFd socket(::accept4(listener_->fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket.valid()) {
            if (errno == EINTR || errno == ECONNABORTED) continue;
            // If no file descriptors are left, the oldest unproven connection is closed.
            if ((errno == EMFILE || errno == ENFILE) && !unproven_.empty()) {
                unproven_.pop_front();
                continue;
            }
            return;
        }
        const std::string peer = peer_text(socket.get());
        if (listener_->endpoint().is_unix() && !is_own_peer(socket.get())) {
            note_refusal(peer, "a process of another user");
            continue;
        }
        const int on = 1;
        ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (unproven_.size() >= kUnprovenConnectionsMax) {
            note_refusal(unproven_.front().peer, "closed to make room for newer connections");
            unproven_.pop_front();
        }
        unproven_.push_back(
            {std::move(socket), LauncherHandshake(key_), peer, clock_.now() + settings_.proof_max});
    }
}

// Reads the bytes that one connection has sent and answers them; the caller removes the connection
// if its socket was closed.
void JoinTransport::serve(Unproven& connection) {
    char block[kJoinBytesMax];
    using State = LauncherHandshake::State;
    LauncherHandshake& handshake = connection.handshake;
    while (handshake.state() == State::kRunning) {
        const ssize_t n = ::recv(connection.socket.get(), block, sizeof block, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n <= 0) {
            note_refusal(connection.peer, "it disconnected before it identified itself");
            return connection.socket.reset();
        }
        handshake.feed(std::string_view(block, static_cast<size_t>(n)));
    }
    if (handshake.state() == State::kProven) return admit(connection);
    // A few hundred bytes fit into an empty socket buffer. If the answer does not fit, the peer is
    // a stranger, and its connection is closed.
    const std::string answer = handshake.take_output();
    if (!answer.empty()) {
        const ssize_t n =
            ::send(connection.socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
        if (n != static_cast<ssize_t>(answer.size())) return connection.socket.reset();
    }
    if (handshake.state() == State::kRunning) return;
    note_refusal(connection.peer, handshake.reason());
    connection.socket.reset();
}

std::optional<size_t> JoinTransport::choose_host(const JoinIdentity& identity,
                                                 std::string& reason) const {
    if (identity.node) {
        if (*identity.node < members_.size()) return *identity.node;
        reason = fmt::format("there is no node {}: this job has {} nodes", *identity.node,
                             members_.size());
        return std::nullopt;
    }
    if (!identity.node_name.empty()) {
        for (size_t i = 0; i < members_.size(); ++i) {
            if (members_[i].host.name == identity.node_name) return i;
        }
        reason = fmt::format("this job has no host `{}`", printable(identity.node_name));
        return std::nullopt;
    }
    // An agent without a name gets the first free host. If the starter starts the agent of a host,
    // the host is not free: its own agent will name it.
    for (size_t i = 0; i < members_.size(); ++i) {
        const bool is_started = settings_.starter != nullptr && settings_.starter->starts(i);
        if (is_missing(i) && !is_started) return i;
    }
    reason = fmt::format("all {} agents have already joined", members_.size());
    return std::nullopt;
}

void JoinTransport::admit(Unproven& connection) {
    const JoinIdentity& identity = connection.handshake.identity();
    std::string reason;
    const auto host = choose_host(identity, reason);
    if (host && !is_missing(*host)) {
        const Member& member = members_[*host];
        reason = member.came_from.empty()
                     ? fmt::format("the launcher no longer waits for node {} ({})", *host,
                                   member.host.name)
                     : fmt::format("node {} ({}) has joined already, from {}", *host,
                                   member.host.name, member.came_from);
    }
    if (reason.empty()) {
        connection.handshake.accept();
    } else {
        connection.handshake.refuse(reason);
        note_refusal(connection.peer, reason);
    }
    Member arrived;
    arrived.socket = std::move(connection.socket);
    arrived.channel = connection.handshake.take_channel();
    if (!reason.empty()) return flush(arrived);  // the connection is closed after this
    Member& member = members_[*host];
    member.socket = std::move(arrived.socket);
    member.channel = std::move(arrived.channel);
    member.channel->say(std::exchange(member.waiting, {}));
    member.came_from = fmt::format("{} ({})", connection.peer, printable(identity.host_name));
    ++joined_count_;
    if (settings_.announce) {
        log_info("launch", "agent {} of {}: {} is {}", joined_count_, members_.size(),
                 member.host.name, member.came_from);
    }
    flush(member);
}

void JoinTransport::note_refusal(const std::string& peer, const std::string& reason) {
    ++refusal_count_;
    const std::string text = fmt::format("{}: {}", peer, reason);
    refusals_.push_back(text);
    if (refusals_.size() > kKeptRefusals) refusals_.pop_front();
    // A port scan must not fill the terminal with messages.
    const auto now = clock_.now();
    if (settings_.announce && now - refusal_logged_ > kCountOfRefusalsPause) {
        refusal_logged_ = now;
        log_info("launch", "refused {} ({} so far)", text, refusal_count_);
    } else {
        log_debug("launch", "refused {}", text);
    }
}

void JoinTransport::drop_late() {
    const auto now = clock_.now();
    for (Unproven& connection : unproven_) {
        if (!connection.socket.valid() || connection.deadline > now) continue;
        note_refusal(connection.peer, "it did not identify itself in time");
        connection.socket.reset();
    }
    unproven_.remove_if([](const Unproven& connection) { return !connection.socket.valid(); });
}

void JoinTransport::read_from(size_t host, Events& events) {
    Member& member = members_[host];
    char block[kReadBytes];
    const ssize_t n = ::recv(member.socket.get(), block, sizeof block, 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    std::string cause = n == 0 ? "its agent closed the connection"
                               : "the connection to its agent broke: " + errno_text(errno);
    if (n > 0) {
        cause.clear();
        try {
            member.channel->receive(std::string_view(block, static_cast<size_t>(n)));
        } catch (const Error& error) {
            cause = fmt::format("the connection to its agent cannot be trusted: {}", error.what());
        }
        std::string bytes = member.channel->take_received();
        if (!bytes.empty())
            events.push_back({TransportEvent::Kind::kBytes, host, std::move(bytes), -1});
        if (cause.empty()) return;
    }
    if (!member.starter_lines.empty()) {
        cause += "; " + last_words(member);
    } else if (starter_ && starter_->ended().value_or(0) != 0) {
        cause += "; " + settings_.starter->describe_end(*starter_->ended(), {});
    }
    end_host(host, std::move(cause), events);
}

bool JoinTransport::is_missing(size_t host) const {
    return !members_[host].ended && members_[host].came_from.empty();
}

void JoinTransport::end_host(size_t host, std::string cause, Events& events, int exit_status) {
    members_[host].ended = true;
    members_[host].socket.reset();
    events.push_back({TransportEvent::Kind::kEnded, host, std::move(cause), exit_status});
}

void JoinTransport::take_starter_lines(Events& events) {
    if (!starter_) return;
    for (const std::string& raw : starter_->take_lines()) {
        const auto [host, line] = settings_.starter->read_line(raw, hosts_);
        if (!host) {
            log_debug("launch", "{}: {}", settings_.starter->name(), printable(line));
            continue;
        }
        Member& member = members_[*host];
        if (member.ended) continue;
        const bool is_lost = settings_.starter->says_host_is_lost(line);
        // A line that says only that a host was lost is less informative than the lines before it.
        if (!is_lost || member.starter_lines.empty()) {
            member.starter_lines.push_back(printable(trim(line)));
            if (member.starter_lines.size() > kLinesOfHost) member.starter_lines.pop_front();
        }
        if (is_lost) {
            end_host(*host, member.starter_lines.back(), events,
                     settings_.starter->exit_status_in(line));
        } else {
            events.push_back({TransportEvent::Kind::kDiagnostic, *host, line, -1});
        }
    }
}

void JoinTransport::look_after_starter(Events& events) {
    if (!starter_ || starter_over_) return;
    const auto status = starter_->ended();
    if (!status) return;
    starter_over_ = true;
    take_starter_lines(events);
    const std::string cause = settings_.starter->describe_end(*status, starter_->last_lines());
    for (size_t i = 0; i < members_.size(); ++i) {
        if (!is_missing(i) || !settings_.starter->starts(i)) continue;
        end_host(i, members_[i].starter_lines.empty() ? cause : last_words(members_[i]), events);
    }
}

std::string JoinTransport::who_came() const {
    std::string text = fmt::format("{} of {} agents joined", joined_count_, members_.size());
    size_t shown = 0;
    for (const Member& member : members_) {
        if (member.came_from.empty() || shown == kShownNames) continue;
        text += fmt::format("{}{} from {}", shown == 0 ? ": " : ", ", member.host.name,
                            member.came_from);
        ++shown;
    }
    if (joined_count_ > shown) text += ", …";
    if (refusal_count_ > 0) {
        text += fmt::format("; refused {}, the last: ",
                            counted(static_cast<int64_t>(refusal_count_), "connection"));
        text += join(std::vector<std::string>(refusals_.begin(), refusals_.end()), ", ");
    }
    if (starter_ && !starter_->last_lines().empty()) {
        text += fmt::format("; {} says: {}", settings_.starter->name(),
                            printable(starter_->last_lines().back()));
    }
    return text;
}

void JoinTransport::give_up_late_hosts(Events& events) {
    if (clock_.now() < deadline_) return;
    bool first = true;
    for (size_t i = 0; i < members_.size(); ++i) {
        if (!is_missing(i)) continue;
        std::string cause = fmt::format("no agent joined as node {} within {} s", i,
                                        std::chrono::duration<double>(settings_.join_max).count());
        if (!members_[i].starter_lines.empty()) cause += ": " + last_words(members_[i]);
        if (std::exchange(first, false)) cause += " (" + who_came() + ")";
        end_host(i, cause, events);
    }
}

void JoinTransport::close_when_complete() {
    if (!listener_ || listener_->fd() < 0) return;
    for (size_t i = 0; i < members_.size(); ++i) {
        if (is_missing(i)) return;
    }
    listener_->close();
    unproven_.clear();
}

milliseconds JoinTransport::poll_time(milliseconds timeout) const {
    const auto now = clock_.now();
    const auto until = [&](TimePoint time) {
        timeout = std::min(timeout,
                           std::chrono::duration_cast<milliseconds>(time - now) + milliseconds(1));
    };
    if (listener_ && listener_->fd() >= 0) until(deadline_);
    for (const Unproven& connection : unproven_) until(connection.deadline);
    if (starter_ && !starter_over_) {
        const auto& fds = starter_->fds();
        if (std::all_of(fds.begin(), fds.end(), [](int fd) { return fd < 0; })) {
            timeout = std::min(timeout, kStarterReapPoll);
        }
    }
    return std::max(timeout, milliseconds(0));
}

std::vector<TransportEvent> JoinTransport::wait(milliseconds timeout, int wake_fd) {
    Events events;
    std::vector<pollfd> entries = {{wake_fd, POLLIN, 0},
                                   {listener_ ? listener_->fd() : -1, POLLIN, 0}};
    if (starter_) {
        for (const int fd : starter_->fds()) entries.push_back({fd, POLLIN, 0});
    }
    const size_t first_member = entries.size();
    for (const Member& member : members_) {
        const int fd = member.socket.get();
        entries.push_back(
            {fd, static_cast<short>(has_to_send(member) ? POLLIN | POLLOUT : POLLIN), 0});
    }
    const size_t first_unproven = entries.size();
    for (const Unproven& connection : unproven_) {
        entries.push_back({connection.socket.get(), POLLIN, 0});
    }
    if (::poll(entries.data(), entries.size(), static_cast<int>(poll_time(timeout).count())) < 0) {
        if (errno == EINTR) return events;
        fail(ExitCode::kInternal, "poll failed: {}", errno_text(errno));
    }
    for (size_t i = 0; i < members_.size(); ++i) {
        const short ready = entries[first_member + i].revents;
        if (!members_[i].socket.valid() || ready == 0) continue;
        if ((ready & POLLOUT) != 0) flush(members_[i]);
        if ((ready & ~POLLOUT) != 0) read_from(i, events);
    }
    size_t index = first_unproven;
    for (Unproven& connection : unproven_) {
        if (entries[index++].revents != 0) serve(connection);
    }
    if (entries[1].revents != 0) accept_all();
    drop_late();
    take_starter_lines(events);
    look_after_starter(events);
    give_up_late_hosts(events);
    close_when_complete();
    return events;
}

}  // namespace

JoinSettings called_back(const JobSpec& spec, std::unique_ptr<AgentStarter> starter) {
    JoinSettings settings;
    settings.endpoint.host = address_facing(addresses_of(spec.nodes));
    settings.token = make_token();
    settings.join_max = spec.connect_max;
    settings.starter = std::move(starter);
    return settings;
}

std::unique_ptr<Transport> make_join_transport(JoinSettings settings) {
    return std::make_unique<JoinTransport>(std::move(settings));
}

}  // namespace dslaunch::launch

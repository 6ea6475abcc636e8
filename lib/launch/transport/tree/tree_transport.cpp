#include "launch/transport/tree/tree_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "launch/process/attention.h"
#include "launch/process/spawn.h"
#include "launch/process/timing.h"
#include "launch/transport/tree/relay_messages.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;

// Returns true if HOSTS_COUNT hosts fit into DEPTH levels if each process opens RADIX connections:
// that is, if radix + radix^2 + … is large enough.
bool has_room(size_t hosts_count, size_t radix, size_t depth) {
    size_t room = 0;
    size_t level = 1;
    for (size_t i = 0; i < depth && room < hosts_count; ++i) {
        level *= std::min(radix, hosts_count);  // limited to avoid overflow
        room += level;
        level = std::min(level, hosts_count);
    }
    return room >= hosts_count;
}

using Time = TimePoint;
using Kind = TransportEvent::Kind;

// The largest number of hosts that are tried as the relay of one subtree. If all of them fail, the
// rest of the subtree is reached without a relay.
constexpr int kRelaysTriedMax = 2;
// The largest number of hosts that are started in a row. A start may take a while on a busy
// machine, and the relays are not served meanwhile.
constexpr int kStartsInARow = 4;
// The time for which the launcher itself tries to reach a host that a relay did not reach.
constexpr milliseconds kTrialMax{5'000};

class TreeTransport final : public Transport {
  public:
    TreeTransport(std::unique_ptr<Transport> base, const TreeOptions& options)
        : base_(std::move(base)),
          options_(options),
          clock_(options.clock == nullptr ? system_clock_ : *options.clock) {}

    void start(const std::vector<HostAddress>& hosts) override;
    void send(size_t index, std::string_view bytes) override;
    void close_input(size_t index) override;
    void abandon(size_t index) override;
    void hold(size_t index, bool held) override;
    std::vector<TransportEvent> wait(milliseconds timeout, int wake_fd) override;

  private:
    struct Host {
        HostAddress address;
        std::optional<size_t> base;   // connection to the host, if it is reached directly
        std::optional<size_t> relay;  // relay through which the host is reached, if any
        uint32_t place = 0;
        std::string pending;  // to be sent once the host is connected
        bool close_pending = false;
        bool spoke = false;
        bool ended = false;
        bool held = false;
        int64_t owed_bytes = 0;  // bytes taken, but not yet returned to their relay as credit
    };
    struct Relay {
        size_t base = 0;
        std::vector<size_t> hosts;  // by place; place 0 is the relay's own host
        RelayDecoder frames{true};
        std::string last_line;  // last line on the relay's stderr; often the reason for its end
        bool serves = false;
        bool ended = false;
        // If the relay cannot reach a host, the launcher tries to reach the host itself. During
        // this trial, `undecided` keeps the events of hosts that have ended. The trial's `verdict`
        // is then added to the errors of these hosts.
        enum class Trying { kNotYet, kNow, kDone } trying = Trying::kNotYet;
        std::vector<TransportEvent> undecided;
        std::string verdict;
        int relays_tried = 0;  // relays of this subtree that failed before this relay
        Time greeting_until = kNever;
        Time last_byte;
        Time next_ping = kNever;
    };
    // A connection that only tests whether a host can be reached.
    struct Trial {
        size_t relay = 0;  // the relay that asks
        size_t base = 0;
        Time until;
        std::string heard;
        bool ended = false;
    };
    // The purpose of a connection of the base transport.
    struct Owner {
        enum class Use { kHost, kRelay, kTrial } use = Use::kHost;
        size_t index = 0;
    };

    size_t add_to_base(HostAddress address, Owner owner);
    void reach(std::vector<size_t> hosts, int relays_tried);
    void start_some();
    void open_relay(std::vector<size_t> hosts, int relays_tried);
    void take(TransportEvent& event);
    void take_direct(size_t index, TransportEvent& event);
    void take_of_relay(size_t index, TransportEvent& event);
    void take_frame(size_t index, RelayFrame& frame);
    void take_of_trial(size_t index, const TransportEvent& event);
    void begin_serving(size_t index, const RelayHello& hello);
    void take_output(size_t index, RelayBytes& output);
    void take_end(size_t index, const RelayEnded& ended);
    void lose_relay(size_t index, const std::string& cause, int exit_status);
    void decide(Trial& trial, bool is_reachable);
    void end_host(size_t index, const std::string& cause, int exit_status);
    void give_credit(Host& host);
    void close_if_over(Relay& relay);
    void check_time();
    [[nodiscard]] milliseconds until_next(milliseconds timeout) const;
    [[nodiscard]] size_t host_at(const Relay& relay, uint32_t place) const;
    void tell_relay(const Relay& relay, RelayFrameKind kind, std::string_view payload = {}) {
        base_->send(relay.base, relay_frame(kind, payload));
    }

    std::unique_ptr<Transport> base_;
    TreeOptions options_;
    SystemClock system_clock_;
    Attention attention_;
    const Clock& clock_;  // system_clock_, or the clock of the options
    std::vector<Host> hosts_;
    std::vector<Relay> relays_;
    std::vector<Trial> trials_;
    std::vector<Owner> owners_;     // by index in the base
    std::deque<size_t> unreached_;  // hosts to be reached directly
    std::vector<TransportEvent> events_;
};

void TreeTransport::start(const std::vector<HostAddress>& hosts) {
    base_->start({});
    for (const HostAddress& address : hosts) {
        hosts_.emplace_back();
        hosts_.back().address = address;
    }
    if (hosts.empty()) return;
    for (const HostRange& range : split_tree(hosts.size(), options_.fanout)) {
        std::vector<size_t> part(range.hosts_count);
        std::iota(part.begin(), part.end(), range.first);
        reach(std::move(part), 0);
    }
    start_some();
}

size_t TreeTransport::add_to_base(HostAddress address, Owner owner) {
    if (owner.use == Owner::Use::kRelay) address.program = RemoteProgram::kRelay;
    const size_t index = base_->add(address);
    DSL_CHECK(index == owners_.size(), "connection {} was added as number {}", index,
              owners_.size());
    owners_.push_back(owner);
    return index;
}

void TreeTransport::reach(std::vector<size_t> hosts, int relays_tried) {
    if (hosts.size() > 1 && relays_tried < kRelaysTriedMax) {
        return open_relay(std::move(hosts), relays_tried);
    }
    for (const size_t host : hosts) {
        hosts_[host].relay.reset();
        unreached_.push_back(host);
    }
}

void TreeTransport::start_some() {
    for (int started = 0; started < kStartsInARow && !unreached_.empty(); ++started) {
        const size_t index = unreached_.front();
        unreached_.pop_front();
        Host& host = hosts_[index];
        if (host.ended) continue;
        host.base = add_to_base(host.address, {Owner::Use::kHost, index});
        if (host.held) base_->hold(*host.base, true);
        base_->send(*host.base, std::exchange(host.pending, {}));
        if (host.close_pending) base_->close_input(*host.base);
    }
}

void TreeTransport::open_relay(std::vector<size_t> hosts, int relays_tried) {
    const size_t index = relays_.size();
    Relay relay;
    relay.base = add_to_base(hosts_[hosts.front()].address, {Owner::Use::kRelay, index});
    relay.relays_tried = relays_tried;
    relay.greeting_until = clock_.now() + options_.greeting_max;
    for (size_t place = 0; place < hosts.size(); ++place) {
        hosts_[hosts[place]].relay = index;
        hosts_[hosts[place]].place = static_cast<uint32_t>(place);
    }
    relay.hosts = std::move(hosts);
    relays_.push_back(std::move(relay));
}

void TreeTransport::send(size_t index, std::string_view bytes) {
    Host& host = hosts_[index];
    if (host.ended) return;
    if (host.base) return base_->send(*host.base, bytes);
    if (!host.relay || !relays_[*host.relay].serves) {
        host.pending.append(bytes);
        return;
    }
    for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kRelayBytesMax))) {
        tell_relay(relays_[*host.relay], RelayFrameKind::kInput,
                   encode(RelayBytes{host.place, std::string(bytes.substr(0, kRelayBytesMax))}));
    }
}

void TreeTransport::close_input(size_t index) {
    Host& host = hosts_[index];
    if (host.ended) return;
    if (host.base) return base_->close_input(*host.base);
    host.close_pending = true;
    if (host.relay && relays_[*host.relay].serves) {
        tell_relay(relays_[*host.relay], RelayFrameKind::kCloseInput,
                   encode(RelayPlace{host.place}));
    }
}

void TreeTransport::abandon(size_t index) {
    Host& host = hosts_[index];
    if (host.ended) return;
    host.ended = true;
    host.pending.clear();
    std::erase_if(events_, [&](const TransportEvent& event) { return event.host == index; });
    if (host.base) return base_->abandon(*host.base);
    if (!host.relay) return;
    Relay& relay = relays_[*host.relay];
    if (relay.serves) tell_relay(relay, RelayFrameKind::kAbandon, encode(RelayPlace{host.place}));
    close_if_over(relay);
}

void TreeTransport::hold(size_t index, bool held) {
    Host& host = hosts_[index];
    host.held = held;
    if (host.ended) return;
    if (host.base) return base_->hold(*host.base, held);
    if (host.relay) give_credit(host);
}

// Gives the relay credit for the bytes of HOST that the launcher has taken. Does nothing until they
// are a quarter of the window, so that few credit frames are sent.
void TreeTransport::give_credit(Host& host) {
    if (host.held || host.owed_bytes < kRelayWindowBytes / 4) return;
    const auto bytes_count = static_cast<uint32_t>(std::exchange(host.owed_bytes, 0));
    tell_relay(relays_[*host.relay], RelayFrameKind::kCredit,
               encode(RelayCredit{host.place, bytes_count}));
}

// Closes a relay whose hosts have all ended, since it has no work left.
void TreeTransport::close_if_over(Relay& relay) {
    const auto is_over = [&](size_t host) { return hosts_[host].ended; };
    if (relay.ended || !std::all_of(relay.hosts.begin(), relay.hosts.end(), is_over)) return;
    if (relay.serves) return base_->close_input(relay.base);
    relay.ended = true;
    base_->abandon(relay.base);
}

size_t TreeTransport::host_at(const Relay& relay, uint32_t place) const {
    if (place >= relay.hosts.size()) {
        fail(ExitCode::kInternal, "it sent a frame for host index {}, but has {} hosts", place,
             relay.hosts.size());
    }
    return relay.hosts[place];
}

void TreeTransport::end_host(size_t index, const std::string& cause, int exit_status) {
    Host& host = hosts_[index];
    if (std::exchange(host.ended, true)) return;
    host.pending.clear();
    events_.push_back({Kind::kEnded, index, cause, exit_status});
}

void TreeTransport::take(TransportEvent& event) {
    const Owner owner = owners_[event.host];
    switch (owner.use) {
        case Owner::Use::kHost:
            return take_direct(owner.index, event);
        case Owner::Use::kTrial:
            return take_of_trial(owner.index, event);
        case Owner::Use::kRelay:
            break;
    }
    try {
        take_of_relay(owner.index, event);
    } catch (const Error& error) {
        base_->abandon(relays_[owner.index].base);
        lose_relay(owner.index, fmt::format("it sent data that cannot be read: {}", error.what()),
                   -1);
    }
}

void TreeTransport::take_direct(size_t index, TransportEvent& event) {
    Host& host = hosts_[index];
    if (host.ended) return;
    if (event.kind != Kind::kEnded) {
        host.spoke = host.spoke || event.kind == Kind::kBytes;
        event.host = index;
        events_.push_back(std::move(event));
        return;
    }
    const bool tells_where = !options_.tried_from.empty() && !host.spoke && event.exit_status < 0;
    end_host(index, (tells_where ? "from " + options_.tried_from + ": " : "") + event.text,
             event.exit_status);
}

void TreeTransport::take_of_relay(size_t index, TransportEvent& event) {
    if (relays_[index].ended) return;
    switch (event.kind) {
        case Kind::kEnded:
            return lose_relay(index, event.text, event.exit_status);
        case Kind::kDiagnostic:
            event.host = relays_[index].hosts.front();
            relays_[index].last_line = event.text;
            if (!hosts_[event.host].ended) events_.push_back(std::move(event));
            return;
        case Kind::kBytes:
            break;
    }
    relays_[index].last_byte = clock_.now();
    relays_[index].frames.append(event.text);
    // A frame may add relays to relays_ and thereby move its elements in memory. Therefore each
    // turn looks the relay up by its index.
    while (auto frame = relays_[index].frames.next()) take_frame(index, *frame);
}

void TreeTransport::take_frame(size_t index, RelayFrame& frame) {
    if (relays_[index].ended) return;
    switch (frame.kind) {
        case RelayFrameKind::kHello:
            return begin_serving(index, decode<RelayHello>(frame.payload));
        case RelayFrameKind::kPong:
            return;
        case RelayFrameKind::kOutput: {
            auto output = decode<RelayBytes>(frame.payload);
            return take_output(index, output);
        }
        case RelayFrameKind::kDiagnostic: {
            const auto line = decode<RelayBytes>(frame.payload);
            const size_t host = host_at(relays_[index], line.place);
            if (!hosts_[host].ended) events_.push_back({Kind::kDiagnostic, host, line.bytes, -1});
            return;
        }
        case RelayFrameKind::kEnded:
            return take_end(index, decode<RelayEnded>(frame.payload));
        default:
            fail(ExitCode::kInternal, "received a frame meant for a relay");
    }
}

void TreeTransport::begin_serving(size_t index, const RelayHello& hello) {
    Relay& relay = relays_[index];
    if (relay.serves) fail(ExitCode::kInternal, "a second hello");
    if (hello.protocol_version != kRelayProtocolVersion) {
        base_->abandon(relay.base);
        return lose_relay(
            index,
            fmt::format("its dslaunch uses relay protocol {}, but this machine's dslaunch ({}) "
                        "uses {}; copy this machine's dslaunch to the same path on that host",
                        hello.protocol_version, DSL_VERSION, kRelayProtocolVersion),
            -1);
    }
    relay.serves = true;
    relay.greeting_until = kNever;
    relay.next_ping = relay.last_byte + kRelayPingInterval;
    RelayHosts hosts{
        options_.transport, options_.ssh_config_path, static_cast<uint32_t>(options_.fanout), {}};
    for (const size_t host : relay.hosts) hosts.hosts.push_back(hosts_[host].address);
    tell_relay(relay, RelayFrameKind::kHosts, encode(hosts));
    for (const size_t h : relay.hosts) {
        Host& host = hosts_[h];
        if (host.ended) {
            tell_relay(relay, RelayFrameKind::kAbandon, encode(RelayPlace{host.place}));
            continue;
        }
        send(h, std::exchange(host.pending, {}));
        if (host.close_pending) close_input(h);
    }
}

void TreeTransport::take_output(size_t index, RelayBytes& output) {
    const size_t h = host_at(relays_[index], output.place);
    Host& host = hosts_[h];
    if (host.ended) return;
    host.spoke = true;
    host.owed_bytes += static_cast<int64_t>(output.bytes.size());
    events_.push_back({Kind::kBytes, h, std::move(output.bytes), -1});
    give_credit(host);
}

void TreeTransport::take_end(size_t index, const RelayEnded& ended) {
    Relay& relay = relays_[index];
    const size_t h = host_at(relay, ended.place);
    if (hosts_[h].ended) return;
    const bool never_reached = !hosts_[h].spoke && ended.exit_status < 0;
    if (!never_reached || ended.place == 0 || !options_.tries_itself) {
        end_host(h, ended.cause, ended.exit_status);
    } else if (relay.trying == Relay::Trying::kDone) {
        end_host(h, ended.cause + relay.verdict, -1);
    } else {
        relay.undecided.push_back({Kind::kEnded, h, ended.cause, -1});
        if (std::exchange(relay.trying, Relay::Trying::kNow) == Relay::Trying::kNotYet) {
            Trial trial{index, 0, clock_.now() + kTrialMax, {}, false};
            trial.base = add_to_base(hosts_[h].address, {Owner::Use::kTrial, trials_.size()});
            trials_.push_back(std::move(trial));
        }
    }
    close_if_over(relays_[index]);
}

void TreeTransport::take_of_trial(size_t index, const TransportEvent& event) {
    Trial& trial = trials_[index];
    if (trial.ended) return;
    if (event.kind == Kind::kEnded) return decide(trial, false);
    if (event.kind != Kind::kBytes) return;
    trial.heard.append(event.text);
    const bool greeted = trial.heard.find(kAgentGreeting) != std::string::npos;
    if (!greeted && trial.heard.size() <= kGreetingNoiseBytesMax) return;
    base_->abandon(trial.base);
    decide(trial, greeted);
}

void TreeTransport::decide(Trial& trial, bool is_reachable) {
    trial.ended = true;
    Relay& relay = relays_[trial.relay];
    relay.trying = Relay::Trying::kDone;
    if (is_reachable) {
        relay.verdict =
            "; this machine can reach the host, but a relay also needs an ssh key and known_hosts "
            "for the host: set them up on all hosts, or give --fanout 0";
    }
    for (const TransportEvent& event : std::exchange(relay.undecided, {})) {
        end_host(event.host, event.text + relay.verdict, event.exit_status);
    }
    close_if_over(relay);
}

void TreeTransport::lose_relay(size_t index, const std::string& cause, int exit_status) {
    if (std::exchange(relays_[index].ended, true)) return;
    const std::vector<size_t> hosts = relays_[index].hosts;
    if (!relays_[index].serves) {
        const bool tells_where = !options_.tried_from.empty() && exit_status < 0;
        end_host(hosts.front(), (tells_where ? "from " + options_.tried_from + ": " : "") + cause,
                 exit_status);
        return reach({hosts.begin() + 1, hosts.end()}, relays_[index].relays_tried + 1);
    }
    const std::string& name = hosts_[hosts.front()].address.name;
    std::string why = cause;
    if (why.empty()) {
        why = fmt::format("it ended with {}", exit_status);
        if (!relays_[index].last_line.empty()) why += ": " + relays_[index].last_line;
    }
    for (const TransportEvent& event : std::exchange(relays_[index].undecided, {})) {
        end_host(event.host, event.text, event.exit_status);
    }
    for (const size_t host : hosts) {
        end_host(host, fmt::format("its relay on {} is lost: {}", name, why), -1);
    }
}

void TreeTransport::check_time() {
    const Time now = clock_.now();
    const auto away = attention_.look(now);
    for (size_t i = 0; i < relays_.size(); ++i) {
        if (relays_[i].ended) continue;
        relays_[i].last_byte += away;
        if (now >= relays_[i].greeting_until) {
            // The relay keeps its own host and continues to try; only the other hosts are reached
            // in another way.
            relays_[i].greeting_until = kNever;
            std::vector<size_t> rest(relays_[i].hosts.begin() + 1, relays_[i].hosts.end());
            relays_[i].hosts.resize(1);
            reach(std::move(rest), relays_[i].relays_tried + 1);
        }
        if (!relays_[i].serves) continue;
        if (now >= relays_[i].next_ping) {
            relays_[i].next_ping = now + kRelayPingInterval;
            tell_relay(relays_[i], RelayFrameKind::kPing);
        }
        if (now - relays_[i].last_byte > options_.silence_max) {
            base_->abandon(relays_[i].base);
            const std::chrono::duration<double> limit = options_.silence_max;
            lose_relay(i, fmt::format("it has sent nothing for {} s", limit.count()), -1);
        }
    }
    for (Trial& trial : trials_) {
        if (trial.ended || now < trial.until) continue;
        base_->abandon(trial.base);
        decide(trial, false);
    }
}

milliseconds TreeTransport::until_next(milliseconds timeout) const {
    Time next = clock_.now() + timeout;
    for (const Relay& relay : relays_) {
        if (!relay.ended) next = std::min({next, relay.greeting_until, relay.next_ping});
    }
    for (const Trial& trial : trials_) {
        if (!trial.ended) next = std::min(next, trial.until);
    }
    return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(next - clock_.now()));
}

std::vector<TransportEvent> TreeTransport::wait(milliseconds timeout, int wake_fd) {
    const auto limit =
        events_.empty() && unreached_.empty() ? until_next(timeout) : milliseconds(0);
    for (TransportEvent& event : base_->wait(limit, wake_fd)) take(event);
    check_time();
    start_some();
    return std::exchange(events_, {});
}

// Returns true if hosts may be reached through other hosts. A relay must be able to use the job's
// transport, so the transport must not need options that only this launcher was given.
bool can_be_tree(const JobSpec& spec) {
    const TransportKind kind = spec.transport;
    return kind == TransportKind::kLocal || kind == TransportKind::kSsh ||
           (kind == TransportKind::kOpenSsh && spec.launcher_args.empty());
}

// The number of descriptors for one host. The ssh program needs stdin, stdout and stderr, and
// copies of them while it starts. libssh needs one socket, and more for ProxyJump or ProxyCommand.
constexpr size_t kDescriptorsOfHost = 4;
constexpr size_t kOwnDescriptors = 64;

void need_descriptors(size_t hosts_wanted, size_t hosts_least) {
    const size_t limit =
        raise_descriptor_limit(kOwnDescriptors + kDescriptorsOfHost * hosts_wanted);
    const size_t least = kOwnDescriptors + kDescriptorsOfHost * hosts_least;
    if (limit >= least) return;
    fail(ExitCode::kSetup,
         "{} hosts at once may need {} open files, but this process is limited to {}: raise the "
         "hard limit (ulimit -Hn), or reach hosts through other hosts with --fanout",
         hosts_least, least, limit);
}

}  // namespace

size_t tree_depth(size_t hosts_count, size_t fanout) {
    DSL_CHECK(fanout >= 2, "the fan-out of a tree is {}, but must be at least 2", fanout);
    size_t depth = 1;
    while (!has_room(hosts_count, fanout, depth)) ++depth;
    return depth;
}

std::vector<HostRange> split_tree(size_t hosts_count, size_t fanout) {
    const size_t depth = tree_depth(hosts_count, fanout);
    size_t ranges_count = hosts_count;
    if (depth > 1) {
        ranges_count = 2;
        while (!has_room(hosts_count, ranges_count, depth)) ++ranges_count;
    }
    std::vector<HostRange> ranges;
    size_t first = 0;
    for (size_t i = 0; i < ranges_count; ++i) {
        const size_t end = (i + 1) * hosts_count / ranges_count;
        ranges.push_back({first, end - first});
        first = end;
    }
    return ranges;
}

std::unique_ptr<Transport> make_tree_transport(std::unique_ptr<Transport> base,
                                               const TreeOptions& options) {
    DSL_CHECK(options.fanout >= 2, "the fan-out of a tree is {}, but must be at least 2",
              options.fanout);
    return std::make_unique<TreeTransport>(std::move(base), options);
}

std::unique_ptr<Transport> make_job_transport(const JobSpec& spec) {
    const bool is_tree = spec.fanout > 0 && spec.nodes.size() > spec.fanout && can_be_tree(spec);
    // In a local job, the limit is not raised: agents on this machine and their workers would
    // inherit it.
    if (spec.transport != TransportKind::kLocal)
        need_descriptors(spec.nodes.size(), is_tree ? spec.fanout : spec.nodes.size());
    auto transport = make_transport(spec);
    if (!is_tree) return transport;
    TreeOptions options;
    options.transport = spec.transport;
    options.ssh_config_path = spec.ssh_config_path;
    options.fanout = spec.fanout;
    options.tries_itself = spec.transport != TransportKind::kLocal;
    return make_tree_transport(std::move(transport), options);
}

}  // namespace dslaunch::launch

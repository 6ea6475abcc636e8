#include "launch/network/network_probe.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/error.h"
#include "base/text.h"
#include "launch/machine/gpu_use.h"
#include "launch/machine/machine_topology.h"
#include "launch/network/interfaces.h"
#include "launch/process/spawn.h"
#include "launch/process/timing.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;

// Reads SSH_CONNECTION, which sshd sets to "client port server port".
std::string arrival_address() {
    const char* connection = std::getenv("SSH_CONNECTION");
    if (connection == nullptr) return {};
    const auto words = split(connection, ' ');
    return words.size() == 4 ? words[2] : std::string();
}

bool is_loopback(const std::string& address) {
    return address.starts_with("127.") || address == "::1" || address == "localhost";
}

// Returns the first IPv4 address of this machine that others can reach.
std::string outward_address() {
    for (const InterfaceAddress& entry : list_interfaces()) {
        const bool is_ipv4 = entry.address.find(':') == std::string::npos;
        if (is_ipv4 && !is_loopback(entry.address)) return entry.address;
    }
    return {};
}

std::string choose_address(const PrepareRequest& request, const std::string& arrival) {
    if (!request.address.empty()) return request.address;
    if (request.loopback_only) return "127.0.0.1";
    if (!arrival.empty() && !is_loopback(arrival)) return arrival;
    const std::string outward = outward_address();
    if (outward.empty()) {
        fail(ExitCode::kSetup,
             "this node has no address that other nodes can reach; give one with --master_addr");
    }
    return outward;
}

// Returns the answer of host NODE to a host that knows the key.
std::string answer_of(const std::string& key, int64_t node) {
    return guest_answer(key, fmt::format("node {}", node));
}

// Returns the error text for a network that changes bytes. If THERE is true, it changes bytes on
// the way to the host, otherwise on the way back.
std::string changed_text(bool there) {
    return fmt::format(
        "data sent {} arrived changed {} times out of {}: memory, a network card or a switch "
        "changes data, and no checksum detects it",
        there ? "there" : "back from there", kGuestOpeningsMax, kGuestOpeningsMax);
}

}  // namespace

AgentHello look_at_node() {
    AgentHello hello;
    utsname names{};
    ::uname(&names);
    hello.version = DSL_VERSION;
    hello.host_name = names.nodename;
    hello.kernel = names.release;
    hello.processor = names.machine;
    hello.pid = ::getpid();
    hello.cores = processors_granted();
    hello.gpus = count_gpus();
    hello.arrival_address = arrival_address();
    return hello;
}

MeetingSocket open_rendezvous(const PrepareRequest& request, const std::string& arrival) {
    const std::string address = choose_address(request, arrival);
    std::string error;
    const auto list = look_up(address, request.port, AI_PASSIVE, &error);
    if (!list)
        fail(ExitCode::kSetup, "the rendezvous address `{}` does not resolve: {}",
             printable(address), error);
    UniqueFd socket = listen_at(*list, request.port, error);
    if (!socket.valid())
        fail(ExitCode::kSetup,
             "cannot listen on {}:{} where the ranks meet: {}; give another address with "
             "--master_addr and --master_port, or leave these options out",
             printable(address), request.port, error);
    int64_t chosen = 0;
    static_cast<void>(local_address(socket.get(), &chosen));
    return {std::move(socket), {address, chosen}};
}

ListenReply NetworkProbe::listen(const ListenRequest& request) {
    if (request.key.empty() || request.key.size() > kGuestKeyBytesMax) {
        fail(ExitCode::kInternal, "received a network key of {} bytes, which is not allowed",
             request.key.size());
    }
    guests_.set_key(request.key);
    answer_ = answer_of(request.key, request.node);
    const std::vector<InterfaceAddress> interfaces = list_interfaces();
    ListenReply reply;
    for (const std::string& address : request.addresses) {
        ListenReply::Place place;
        place.address = address;
        try {
            PrepareRequest prepare;
            prepare.address = address;
            prepare.port = request.port;
            MeetingSocket listener = open_rendezvous(prepare, {});
            place.port = listener.where.port;
            place.numeric = local_address(listener.socket.get());
            place.interface = interface_of(interfaces, place.numeric);
            set_blocking(listener.socket.get(), false);
            listeners_.push_back(std::move(listener));
        } catch (const Error& error) {
            if (request.port != 0) throw;
            place.error = error.what();
        }
        reply.places.push_back(std::move(place));
    }
    reply.clock_ns = wall_clock().count();
    return reply;
}

void NetworkProbe::begin(const ProbeRequest& request, Time now) {
    if (deadline_ || request.targets.size() > kProbeTargetsMax) {
        fail(ExitCode::kInternal,
             "received a second probe request, or one with too many targets ({})",
             request.targets.size());
    }
    key_ = request.key;
    time_max_ = milliseconds(std::clamp<int64_t>(request.time_max_ms, 0, 60'000));
    deadline_ = now + time_max_;
    attempts_.clear();
    for (const ProbeRequest::Target& target : request.targets) {
        Attempt& attempt = attempts_.emplace_back();
        attempt.target = target;
        attempt.result.node = target.node;
        attempt.result.address = target.address;
        open(attempt);
    }
}

void NetworkProbe::open(Attempt& attempt) {
    const ProbeRequest::Target& target = attempt.target;
    ++attempt.openings;
    attempt.connected = false;
    attempt.received.clear();
    const auto list = look_up(target.address, target.port, AI_NUMERICHOST);
    if (!list) return decide(attempt, "it is not an address");
    attempt.socket =
        UniqueFd(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!attempt.socket.valid()) return decide(attempt, errno_text(errno));
    const int status = ::connect(attempt.socket.get(), list->ai_addr, list->ai_addrlen);
    const int error_number = status == 0 ? 0 : errno;
    attempt.result.own_address = local_address(attempt.socket.get());
    if (error_number != 0 && error_number != EINPROGRESS) {
        decide(attempt, errno_text(error_number));
    }
}

void NetworkProbe::decide(Attempt& attempt, std::string error) {
    attempt.result.error = std::move(error);
    attempt.socket.reset();
}

void NetworkProbe::say_key(Attempt& attempt) {
    const int fd = attempt.socket.get();
    int error_number = 0;
    socklen_t length = sizeof error_number;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error_number, &length);
    if (error_number != 0) return decide(attempt, errno_text(error_number));
    attempt.connected = true;
    attempt.result.own_address = local_address(fd);
    // The key is so short that a new socket accepts it in one call.
    if (::send(fd, key_.data(), key_.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(key_.size()))
        decide(attempt, errno_text(errno));
}

void NetworkProbe::advance(Attempt& attempt) {
    if (!attempt.connected) return say_key(attempt);
    char block[kGuestAnswerBytes];
    const ssize_t n =
        ::recv(attempt.socket.get(), block, kGuestAnswerBytes - attempt.received.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) return decide(attempt, errno_text(errno));
    if (n == 0) return decide(attempt, "a program other than dslaunch answers there");
    attempt.received.append(block, static_cast<size_t>(n));
    if (attempt.received.size() == kGuestAnswerBytes) judge(attempt);
}

// Decides about a connection. If its first bytes arrived changed, opens the connection again, since
// the cause may have been a single bad packet.
void NetworkProbe::judge(Attempt& attempt) {
    const Arrival welcome = arrival_of(attempt.received, answer_of(key_, attempt.result.node));
    if (welcome == Arrival::kWhole) return decide(attempt, "");
    const bool refused = arrival_of(attempt.received, changed_key_answer(key_)) != Arrival::kOther;
    if (!refused && welcome == Arrival::kOther)
        return decide(attempt, "another host answers there: two hosts have this address");
    if (attempt.openings < kGuestOpeningsMax) return open(attempt);
    decide(attempt, changed_text(refused));
}

void NetworkProbe::answer(UniqueFd socket) {
    if (::send(socket.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(answer_.size())) {
        return;
    }
    if (answered_.size() == kGuestsMax) answered_.pop_front();
    answered_.push_back({std::move(socket), std::chrono::steady_clock::now() + kGuestMax});
}

std::vector<NetworkProbe::Watch> NetworkProbe::watch() const {
    std::vector<Watch> watched;
    for (const MeetingSocket& listener : listeners_) {
        watched.push_back({listener.socket.get(), POLLIN});
    }
    for (const int guest : guests_.descriptors()) watched.push_back({guest, POLLIN});
    for (const Answered& host : answered_) watched.push_back({host.socket.get(), POLLIN});
    for (const Attempt& attempt : attempts_) {
        if (!attempt.socket.valid()) continue;
        const short events = attempt.connected ? POLLIN : POLLOUT;
        watched.push_back({attempt.socket.get(), events});
    }
    return watched;
}

void NetworkProbe::ready(int fd) {
    for (const MeetingSocket& listener : listeners_) {
        if (listener.socket.get() == fd) {
            return guests_.accept_from(fd, std::chrono::steady_clock::now());
        }
    }
    if (guests_.hear(fd)) return;
    for (auto host = answered_.begin(); host != answered_.end(); ++host) {
        if (host->socket.get() != fd) continue;
        char byte = 0;
        const bool stays = ::recv(fd, &byte, 1, 0) < 0 && (errno == EAGAIN || errno == EINTR);
        if (!stays) answered_.erase(host);
        return;
    }
    for (Attempt& attempt : attempts_) {
        if (attempt.socket.get() == fd) return advance(attempt);
    }
}

std::optional<NetworkProbe::Time> NetworkProbe::deadline() const {
    return deadline_;
}

std::optional<ProbeReply> NetworkProbe::take_reply(Time now) {
    guests_.drop_late(now);
    while (!answered_.empty() && now >= answered_.front().until) answered_.pop_front();
    if (!deadline_) return std::nullopt;
    const bool open = std::any_of(attempts_.begin(), attempts_.end(),
                                  [](const Attempt& attempt) { return attempt.socket.valid(); });
    if (open && now < *deadline_) return std::nullopt;
    const std::vector<InterfaceAddress> interfaces = list_interfaces();
    ProbeReply reply;
    for (Attempt& attempt : attempts_) {
        if (attempt.socket.valid()) {
            decide(attempt,
                   fmt::format("no answer within {} s{}",
                               std::chrono::duration<double>(time_max_).count(),
                               attempt.connected ? ", although the connection was accepted" : ""));
        }
        attempt.result.interface = interface_of(interfaces, attempt.result.own_address);
        reply.results.push_back(std::move(attempt.result));
    }
    attempts_.clear();
    deadline_.reset();
    return reply;
}

MeetingSocket NetworkProbe::keep(const std::string& address) {
    MeetingSocket kept;
    for (MeetingSocket& listener : listeners_) {
        if (listener.where.address != address || address.empty()) continue;
        kept = std::move(listener);
        break;
    }
    guests_.clear();
    answered_.clear();
    attempts_.clear();
    deadline_.reset();
    if (kept.socket.valid()) {
        do {
            guests_.clear();
            guests_.accept_from(kept.socket.get(), std::chrono::steady_clock::now());
        } while (!guests_.empty());
        set_blocking(kept.socket.get(), true);
    } else if (!address.empty()) {
        fail(ExitCode::kInternal, "no socket listens at the chosen address");
    }
    listeners_.clear();
    return kept;
}

}  // namespace dslaunch::launch

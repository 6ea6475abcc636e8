#include "runtime/comm/link_probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/text.h"
#include "base/text_bytes.h"
#include "launch/network/interfaces.h"
#include "launch/process/spawn.h"

namespace dslaunch::runtime {
namespace {

// The largest number of connections that have shown the token. A search needs few connections,
// since each host has only one partner at a time.
constexpr size_t kConnectionsMax = 64;
constexpr int kIdleMaxMilliseconds = 30'000;
constexpr size_t kChunkWords = 32 << 10;
// If small messages pass, but fewer bytes of a burst than this number arrive, the path is assumed
// to lose large packets.
constexpr int64_t kStuckBytes = 4096;
constexpr int kLargeBursts = 3;
// The rate of a burst is measured in two ways: with and without the time that the ends waited for a
// processor. The second rate is limited to this many times the first rate.
constexpr int64_t kBusyPartMost = 8;

enum class Kind : uint64_t { kExchange = 1, kBurst = 2, kMangled = 3 };

uint64_t mix(uint64_t value) {
    value = (value ^ (value >> 31)) * 0x9e3779b97f4a7c15;
    return value ^ (value >> 29);
}

// A message is little-endian, as all machines of a job are.
struct Message {
    Kind kind = Kind::kExchange;
    uint64_t seed = 0;  // in a burst's answer: nanoseconds that its receiver waited for a processor
    uint64_t value = 0;  // in a burst: number of words; in its answer: number of wrong words
    uint64_t check = 0;

    [[nodiscard]] uint64_t expected_check() const {
        // Mixes the fields one after the other, so that equal changes in two of them do not cancel
        // out.
        return mix(mix(mix(static_cast<uint64_t>(kind) + 1) + seed) + value);
    }
    void seal() { check = expected_check(); }
    [[nodiscard]] bool is_whole() const { return check == expected_check(); }
};

uint64_t word_of(uint64_t seed, uint64_t index) {
    return (seed * 0x9e3779b97f4a7c15) ^ ((index + 1) * 0xc2b2ae3d27d4eb4f);
}

// kAnswered: the other end has sent something before it received everything.
enum class Outcome { kDone, kLate, kClosed, kAnswered };

int milliseconds_until(TimePoint deadline) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - SystemClock().now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

// Sends or receives all of BYTES on a non-blocking socket. Waits for EVENTS whenever it would
// block.
template <typename Byte, typename Transfer>
Outcome move_all(int fd, std::span<Byte> bytes, TimePoint deadline, short events,
                 const Transfer& transfer) {
    while (!bytes.empty()) {
        const ssize_t count = transfer(bytes);
        if (count > 0) {
            bytes = bytes.subspan(static_cast<size_t>(count));
            continue;
        }
        if (count == 0) return Outcome::kClosed;
        if (errno == EINTR) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) return Outcome::kClosed;
        pollfd wanted{fd, events, 0};
        const int left = milliseconds_until(deadline);
        if (left == 0 || ::poll(&wanted, 1, left) == 0) return Outcome::kLate;
        const bool sends = (events & POLLOUT) != 0;
        if (sends && (wanted.revents & POLLIN) != 0) return Outcome::kAnswered;
    }
    return Outcome::kDone;
}

Outcome send_all(int fd, std::span<const std::byte> bytes, TimePoint deadline,
                 short events = POLLOUT) {
    return move_all(fd, bytes, deadline, events, [fd](std::span<const std::byte> rest) {
        const ssize_t count = ::send(fd, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        return count;
    });
}

Outcome receive_all(int fd, std::span<std::byte> bytes, TimePoint deadline) {
    return move_all(fd, bytes, deadline, POLLIN, [fd](std::span<std::byte> rest) {
        return ::recv(fd, rest.data(), rest.size(), MSG_DONTWAIT);
    });
}

template <typename Value>
Outcome send_value(int fd, const Value& value, TimePoint deadline) {
    return send_all(fd, std::as_bytes(std::span(&value, 1)), deadline);
}
template <typename Value>
Outcome receive_value(int fd, Value& value, TimePoint deadline) {
    return receive_all(fd, std::as_writable_bytes(std::span(&value, 1)), deadline);
}

// Returns the socket address of an IP address in digits.
std::shared_ptr<addrinfo> endpoint(const std::string& digits, int port) {
    std::shared_ptr<addrinfo> found = launch::look_up(digits, port, AI_NUMERICHOST);
    if (found == nullptr) fail(ExitCode::kSetup, "`{}` is not a numeric IP address", digits);
    return found;
}

void answer_at_once(int fd) {
    const int on = 1;
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Receives the rest of a burst after its request, and counts the wrong words.
Outcome take_burst(int fd, const Message& request, uint64_t& wrong, TimePoint deadline) {
    std::vector<uint64_t> chunk(kChunkWords);
    for (uint64_t done = 0; done < request.value;) {
        const auto count =
            static_cast<size_t>(std::min<uint64_t>(request.value - done, kChunkWords));
        const std::span<uint64_t> words(chunk.data(), count);
        const Outcome outcome = receive_all(fd, std::as_writable_bytes(words), deadline);
        if (outcome != Outcome::kDone) return outcome;
        for (size_t i = 0; i < count; ++i)
            wrong += words[i] != word_of(request.seed, done + i) ? 1 : 0;
        done += count;
    }
    return Outcome::kDone;
}

// Returns the total time for which this thread has waited for a processor, or 0 if the system does
// not count it.
int64_t waited_nanoseconds() {
    std::array<char, 128> text{};
    const UniqueFd file(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
    if (!file.valid() || ::read(file.get(), text.data(), text.size() - 1) <= 0) return 0;
    const std::vector<std::string> words = split(text.data(), ' ');
    return words.size() < 2 ? 0 : parse_int(words[1]).value_or(0);
}

TimePoint idle_deadline() {
    return SystemClock().now() + std::chrono::milliseconds(kIdleMaxMilliseconds);
}

std::string key_of(const ProbeToken& token) {
    const auto bytes = std::as_bytes(std::span(token));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string welcome_of(const ProbeToken& token) {
    return launch::guest_answer(key_of(token), "welcome");
}

// Answers the probe at FD. REQUIRES: the connection has shown the token.
void serve(int fd, const std::string& welcome) {
    answer_at_once(fd);
    if (send_all(fd, bytes_in(welcome), idle_deadline()) != Outcome::kDone) return;
    for (;;) {
        Message message;
        if (receive_value(fd, message, idle_deadline()) != Outcome::kDone) return;
        if (!message.is_whole()) {
            message.kind = Kind::kMangled;
        } else if (message.kind == Kind::kBurst) {
            uint64_t wrong = 0;
            const int64_t waited = waited_nanoseconds();
            if (take_burst(fd, message, wrong, idle_deadline()) != Outcome::kDone) return;
            message.value = wrong;
            message.seed = static_cast<uint64_t>(waited_nanoseconds() - waited);
        }
        message.seal();
        if (send_value(fd, message, idle_deadline()) != Outcome::kDone) return;
    }
}

struct Counters {
    int64_t sent_again = 0;
    int64_t came_twice = 0;
    int64_t acknowledged_bytes = 0;
};

Counters counters_of(int fd) {
    tcp_info info{};
    socklen_t length = sizeof info;
    (void)::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length);
    return {info.tcpi_total_retrans, info.tcpi_dsack_dups,
            static_cast<int64_t>(info.tcpi_bytes_acked)};
}

std::string limit_text(Duration limit) {
    return fmt::format("{:.1f} s", to_milliseconds(limit) / 1000);
}

// A probe, from its connection to its end.
class Prober {
  public:
    Prober(const ProbePlace& place, const ProbeToken& token, const ProbeLimits& limits)
        : place_(place), token_(token), limits_(limits) {}

    ProbeResult run() {
        if (open() && exchange()) grow_bursts();
        return {sample_, wrong_back_};
    }

  private:
    enum class Greeting { kWelcome, kChanged, kFailed };

    bool fail_with(std::string error) {
        sample_.error = std::move(error);
        return false;
    }
    // Connects, and connects again if the first bytes were changed in transit. Returns false if
    // they are changed each time, or if the path does not work.
    bool open() {
        const TimePoint enough = SystemClock().now() + limits_.connect;
        for (int opening = 0; opening < launch::kGuestOpeningsMax; ++opening) {
            if (opening > 0 && SystemClock().now() > enough) break;
            if (!connect()) return false;
            const Greeting greeting = greet();
            if (greeting != Greeting::kChanged) return greeting == Greeting::kWelcome;
            ++sample_.wrong;
        }
        return false;
    }

    bool connect() {
        const TimePoint deadline = SystemClock().now() + limits_.connect;
        const std::shared_ptr<addrinfo> to = endpoint(place_.to, place_.port);
        fd_.reset(::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!fd_.valid()) return fail_with("cannot create a socket: " + errno_text(errno));
        if (!place_.from.empty()) {
            const std::shared_ptr<addrinfo> from = endpoint(place_.from, 0);
            if (::bind(fd_.get(), from->ai_addr, from->ai_addrlen) != 0)
                return fail_with(
                    fmt::format("cannot send from {}: {}", place_.from, errno_text(errno)));
        }
        answer_at_once(fd_.get());
        if (::connect(fd_.get(), to->ai_addr, to->ai_addrlen) == 0) return true;
        int error = errno;
        if (error == EINPROGRESS) {
            pollfd wanted{fd_.get(), POLLOUT, 0};
            if (::poll(&wanted, 1, milliseconds_until(deadline)) == 0)
                return fail_with(
                    fmt::format("no connection to {} within {}: the host is down, the cable is "
                                "broken, or a firewall drops packets",
                                place_.to, limit_text(limits_.connect)));
            socklen_t length = sizeof error;
            (void)::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
        }
        if (error == 0) return true;
        return fail_with(fmt::format("no connection to {}: {}", place_.to, errno_text(error)));
    }

    Greeting greet() {
        const TimePoint deadline = SystemClock().now() + limits_.connect;
        std::string answer(launch::kGuestAnswerBytes, '\0');
        Outcome outcome = send_value(fd_.get(), token_, deadline);
        if (outcome == Outcome::kDone)
            outcome = receive_all(fd_.get(), std::as_writable_bytes(std::span(answer)), deadline);
        const auto failed = [&](std::string error) {
            fail_with(std::move(error));
            return Greeting::kFailed;
        };
        if (outcome == Outcome::kLate)
            return failed(
                fmt::format("{} accepts the connection, but its rank does not answer within {}: it "
                            "is stopped, or packets are lost",
                            place_.to, limit_text(limits_.connect)));
        if (outcome == Outcome::kClosed)
            return failed(fmt::format("{} closed the connection at once", place_.to));
        const launch::Arrival welcome = launch::arrival_of(answer, welcome_of(token_));
        const launch::Arrival refusal =
            launch::arrival_of(answer, launch::changed_key_answer(key_of(token_)));
        if (welcome == launch::Arrival::kOther && refusal == launch::Arrival::kOther)
            return failed(fmt::format("{} does not answer like a rank of this job", place_.to));
        if (welcome == launch::Arrival::kChanged || refusal == launch::Arrival::kChanged)
            ++wrong_back_;
        if (refusal != launch::Arrival::kOther) return Greeting::kChanged;
        before_ = counters_of(fd_.get());
        return Greeting::kWelcome;
    }

    bool exchange() {
        SystemClock clock;
        const TimePoint begun = clock.now();
        // A lost packet may delay an answer. Therefore this phase may also use the time of the next
        // phase.
        const TimePoint deadline = begun + limits_.latency + limits_.burst;
        Outcome outcome = Outcome::kDone;
        for (int64_t i = 0; i < limits_.exchanges_max; ++i) {
            const TimePoint sent = clock.now();
            if (sent - begun > limits_.latency) break;
            if (!exchange_once(static_cast<uint64_t>(i), deadline, outcome)) break;
            times_.push_back((clock.now() - sent).count());
        }
        count_packets();
        if (outcome == Outcome::kDone) return true;
        return fail_with(
            outcome == Outcome::kLate
                ? fmt::format("{} answered {} small messages, but then did not answer for {}",
                              place_.to, sample_.exchanges, limit_text(limits_.burst))
                : fmt::format("{} closed the connection after {} small messages", place_.to,
                              sample_.exchanges));
    }

    bool exchange_once(uint64_t seed, TimePoint deadline, Outcome& outcome) {
        Message message{Kind::kExchange, seed, mix(seed), 0};
        message.seal();
        Message answer;
        outcome = send_value(fd_.get(), message, deadline);
        if (outcome == Outcome::kDone) outcome = receive_value(fd_.get(), answer, deadline);
        if (outcome != Outcome::kDone) return false;
        if (!answer.is_whole()) {
            ++wrong_back_;
        } else if (answer.kind == Kind::kMangled) {
            ++sample_.wrong;
        }
        return true;
    }

    // Counts packets. A packet counts as lost if it was sent again but came only once. It counts as
    // duplicated on the path if it was sent once but came twice. If it was sent again and came
    // twice, sending it again was not necessary.
    void count_packets() {
        sample_.exchanges = static_cast<int64_t>(times_.size());
        const Counters now = counters_of(fd_.get());
        const int64_t again = now.sent_again - before_.sent_again;
        const int64_t twice = now.came_twice - before_.came_twice;
        sample_.lost = std::max<int64_t>(again - twice, 0);
        sample_.duplicated = std::max<int64_t>(twice - again, 0);
        if (times_.empty()) return;
        std::sort(times_.begin(), times_.end());
        sample_.rtt_p50 = times_[times_.size() / 2];
        sample_.rtt_p99 = times_[times_.size() * 99 / 100];
    }

    void grow_bursts() {
        uint64_t seed = 1'000'003;
        int64_t bytes = limits_.burst_bytes_min;
        for (;;) {
            sample_.bytes_per_second = sample_.free_bytes_per_second = 0;
            const TimePoint begun = SystemClock().now();
            if (!burst(bytes / 8, ++seed)) return;
            if (SystemClock().now() - begun >= limits_.burst_enough) break;
            if (bytes * 2 > limits_.burst_bytes_max) break;
            bytes *= 2;
        }
        // Only the best burst counts, since a disturbance need not affect every burst.
        const TimePoint late = SystemClock().now() + limits_.burst;
        for (int large = 1; large < kLargeBursts && SystemClock().now() < late; ++large)
            if (!burst(bytes / 8, ++seed)) return;
    }

    bool burst(int64_t words, uint64_t seed) {
        const TimePoint begun = SystemClock().now();
        const int64_t waited = waited_nanoseconds();
        before_ = counters_of(fd_.get());
        Message request{Kind::kBurst, seed, static_cast<uint64_t>(words), 0};
        request.seal();
        Message answer;
        Outcome outcome = Outcome::kDone;
        const bool done = send_burst(request, begun + limits_.burst, answer, outcome);
        const Duration took = SystemClock().now() - begun;
        if (outcome == Outcome::kLate) judge_unfinished(words, took);
        if (outcome == Outcome::kClosed)
            return fail_with(fmt::format("{} closed the connection during a burst of {} KiB",
                                         place_.to, words * 8 / 1024));
        if (!done) return false;
        if (!answer.is_whole()) {
            ++wrong_back_;
            return true;
        }
        if (answer.kind != Kind::kBurst) {
            ++sample_.wrong;
            return false;
        }
        sample_.wrong += static_cast<int64_t>(answer.value);
        // Both ends may have waited at the same time, so the longer wait is the least time that was
        // lost.
        note_rate(words * 8, took,
                  std::max(waited_nanoseconds() - waited, static_cast<int64_t>(answer.seed)));
        return true;
    }

    bool send_burst(const Message& request, TimePoint deadline, Message& answer, Outcome& outcome) {
        outcome = send_value(fd_.get(), request, deadline);
        std::vector<uint64_t> chunk(kChunkWords);
        for (uint64_t done = 0; done < request.value && outcome == Outcome::kDone;) {
            const auto count =
                static_cast<size_t>(std::min<uint64_t>(request.value - done, kChunkWords));
            for (size_t i = 0; i < count; ++i) chunk[i] = word_of(request.seed, done + i);
            outcome = send_all(fd_.get(), std::as_bytes(std::span(chunk.data(), count)), deadline,
                               POLLOUT | POLLIN);
            done += count;
        }
        // If the request was changed in transit, the peer answers the changed request. It then
        // takes the words of the burst for messages, and answers them too.
        if (outcome == Outcome::kAnswered) outcome = Outcome::kDone;
        if (outcome == Outcome::kDone) outcome = receive_value(fd_.get(), answer, deadline);
        return outcome == Outcome::kDone;
    }

    void note_rate(int64_t bytes, Duration took, int64_t waited) {
        const auto per_second = [&](int64_t nanoseconds) {
            return static_cast<int64_t>(static_cast<double>(bytes) * 1e9 /
                                        static_cast<double>(std::max<int64_t>(nanoseconds, 1)));
        };
        const int64_t free = std::max(took.count() - waited, took.count() / kBusyPartMost);
        sample_.bytes_per_second = std::max(sample_.bytes_per_second, per_second(took.count()));
        sample_.free_bytes_per_second = std::max(sample_.free_bytes_per_second, per_second(free));
    }

    // Judges a link as slow or stuck, by the number of bytes that the peer's system has
    // acknowledged.
    void judge_unfinished(int64_t words, Duration took) {
        const int64_t bytes =
            counters_of(fd_.get()).acknowledged_bytes - before_.acknowledged_bytes;
        if (bytes >= kStuckBytes) {
            note_rate(bytes, took, 0);
            return;
        }
        fail_with(
            fmt::format("small messages pass, but of {} KiB sent in large packets only {} bytes "
                        "reached {} within {}: some part of the path has a smaller MTU (check `ip "
                        "link` on both hosts, and the switch), or the link went down",
                        words * 8 / 1024, bytes, place_.to, limit_text(limits_.burst)));
    }

    const ProbePlace& place_;
    const ProbeToken& token_;
    const ProbeLimits& limits_;
    UniqueFd fd_;
    health::LinkSample sample_;
    int64_t wrong_back_ = 0;
    Counters before_;
    std::vector<int64_t> times_;
};

}  // namespace

ProbeServer::ProbeServer(const std::string& address, const ProbeToken& token)
    : welcome_(welcome_of(token)),
      wake_(make_pipe()),
      guests_([this](UniqueFd connection) { begin_to_serve(std::move(connection)); }) {
    guests_.set_key(key_of(token));
    std::string error;
    listener_ = launch::listen_at(*endpoint(address, 0), 0, error);
    if (!listener_.valid())
        fail(ExitCode::kSetup, "cannot listen on address {}: {}", address, error);
    launch::set_blocking(listener_.get(), false);
    int64_t port = 0;
    static_cast<void>(launch::local_address(listener_.get(), &port));
    port_ = static_cast<int>(port);
    thread_ = std::thread([this] { accept_until_stopped(); });
}

ProbeServer::~ProbeServer() {
    wake_.write_end.reset();
    thread_.join();
    for (const auto& connection : connections_) (void)::shutdown(connection->fd.get(), SHUT_RDWR);
    for (const auto& connection : connections_) connection->thread.join();
}

void ProbeServer::drop_finished() {
    std::erase_if(connections_, [](const std::unique_ptr<Connection>& connection) {
        if (!connection->done) return false;
        connection->thread.join();
        return true;
    });
}

void ProbeServer::accept_until_stopped() {
    for (;;) {
        std::vector<pollfd> wanted = {{wake_.read_end.get(), POLLIN, 0},
                                      {listener_.get(), POLLIN, 0}};
        for (const int guest : guests_.descriptors()) wanted.push_back({guest, POLLIN, 0});
        const std::optional<TimePoint> late = guests_.next_late();
        const int ready =
            ::poll(wanted.data(), wanted.size(), late ? milliseconds_until(*late) : -1);
        if (ready < 0 && errno != EINTR) return;
        if (ready < 0) continue;
        if (wanted[0].revents != 0) return;
        // First handles the connections that have data, then accepts new connections. A connection
        // that shows the token leaves guests_, so a new connection can take its place.
        for (size_t i = 2; i < wanted.size(); ++i) {
            if (wanted[i].revents != 0) static_cast<void>(guests_.hear(wanted[i].fd));
        }
        guests_.drop_late(SystemClock().now());
        if (wanted[1].revents != 0) guests_.accept_from(listener_.get(), SystemClock().now());
    }
}

void ProbeServer::begin_to_serve(UniqueFd fd) {
    drop_finished();
    if (connections_.size() >= kConnectionsMax) return;
    auto connection = std::make_unique<Connection>();
    connection->fd = std::move(fd);
    Connection& one = *connection;
    one.thread = std::thread([this, &one] {
        serve(one.fd.get(), welcome_);
        (void)::shutdown(one.fd.get(), SHUT_RDWR);
        one.done = true;
    });
    connections_.push_back(std::move(connection));
}

ProbeResult probe_link(const ProbePlace& place, const ProbeToken& token,
                       const ProbeLimits& limits) {
    return Prober(place, token, limits).run();
}

Duration time_processor() {
    constexpr uint64_t kRounds = 10'000'000;
    const TimePoint begun = SystemClock().now();
    uint64_t value = 1;
    for (uint64_t i = 0; i < kRounds; ++i) value = mix(value + i);
    // The value must be used, or the compiler removes the loop.
    volatile uint64_t sink = value;
    (void)sink;
    return SystemClock().now() - begun;
}

}  // namespace dslaunch::runtime

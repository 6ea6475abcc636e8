// A switch with faults on purpose. It carries Ethernet frames between the hosts of rig.sh, each of
// which has one end of a veth pair. It delays, drops, doubles or changes frames from one host to
// another. It replaces `tc netem` on kernels that lack it, and can also affect a single pair of
// hosts or a single direction.
//   wire PREFIX COUNT
// takes PREFIX0v to PREFIX<COUNT>v off their bridge. Lines on stdin change frames FROM a host TO a
// host (`*`: any of 1 to COUNT; frames of host 0, where the launcher runs, never change):
//   set FROM TO [delay_ms=N] [jitter_ms=N] [loss=P] [twice=P] [corrupt=P] [change=P] [rate=BYTES]
//   [larger=BYTES]
//   clear
// Each line is answered by `ok`. P is a probability from 0 to 1. The checksum shows a change by
// `corrupt`, but not a change by `change`. `larger` drops packets above a size. End of input ends
// it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <queue>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Nanoseconds = std::chrono::nanoseconds;

// The header of linux/virtio_net.h, which cannot be compiled as C++.
struct FrameHeader {
    uint8_t flags;
    uint8_t gso_type;  // 0: one whole packet
    uint16_t header_bytes;
    uint16_t gso_size;
    uint16_t checksum_start;
    uint16_t checksum_offset;
};

constexpr size_t kFrameBytesMax = (64U << 10) + 256;
constexpr size_t kHeaderBytes = sizeof(FrameHeader);
constexpr size_t kEthernetBytes = 14;
constexpr auto kQueueTimeMax = std::chrono::milliseconds(200);

struct Rule {
    double delay_ms = 0;
    double jitter_ms = 0;
    double loss = 0;
    double twice = 0;
    double corrupt = 0;
    double change = 0;
    double rate = 0;    // bytes a second; 0: no limit
    double larger = 0;  // packets of more bytes are dropped; 0: no limit
    Clock::time_point free_at{};
    Clock::time_point last_at{};  // due time of the last frame: frames stay in order
};

struct Waiting {
    Clock::time_point due;
    uint64_t order = 0;
    size_t to = 0;
    std::vector<unsigned char> frame;  // frame with its virtio header
    bool operator<(const Waiting& other) const {
        return due != other.due ? due > other.due : order > other.order;
    }
};

[[noreturn]] void die(const std::string& what) {
    std::fprintf(stderr, "wire: %s: %s\n", what.c_str(), std::strerror(errno));
    std::exit(1);
}

int open_port(const std::string& name) {
    const int fd = ::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) die("packet socket");
    const int on = 1;
    const int bytes = 64 << 20;
    (void)::setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
    (void)::setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes);
    if (::setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) != 0) die("vnet header");
    if (::setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0) die("outgoing");
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(::if_nametoindex(name.c_str()));
    if (address.sll_ifindex == 0) die(name);
    if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) die("bind " + name);
    return fd;
}

class Wire {
  public:
    Wire(const std::string& prefix, size_t count) : rules_((count + 1) * (count + 1)) {
        for (size_t i = 0; i <= count; ++i)
            ports_.push_back(open_port(prefix + std::to_string(i) + "v"));
    }

    void run() {
        for (;;) {
            std::vector<pollfd> wanted = {{0, POLLIN, 0}};
            for (const int port : ports_) wanted.push_back({port, POLLIN, 0});
            const timespec wait = time_to_next();
            if (::ppoll(wanted.data(), wanted.size(), &wait, nullptr) < 0 && errno != EINTR)
                die("poll");
            if (wanted[0].revents != 0 && !read_commands()) return;
            for (size_t i = 0; i < ports_.size(); ++i)
                if (wanted[i + 1].revents != 0) take_frames(i);
            send_due();
        }
    }

  private:
    Rule& rule(size_t from, size_t to) { return rules_[from * ports_.size() + to]; }
    bool happens(double probability) {
        return probability > 0 && std::uniform_real_distribution<>(0, 1)(random_) < probability;
    }

    [[nodiscard]] timespec time_to_next() const {
        if (waiting_.empty()) return {1, 0};
        const auto left = std::max(waiting_.top().due - Clock::now(), Clock::duration::zero());
        const auto nanoseconds = std::chrono::duration_cast<Nanoseconds>(left).count();
        return {static_cast<time_t>(nanoseconds / 1'000'000'000), nanoseconds % 1'000'000'000};
    }

    bool read_commands() {
        std::array<char, 4096> bytes{};
        const ssize_t count = ::read(0, bytes.data(), bytes.size());
        if (count <= 0) return false;
        text_.append(bytes.data(), static_cast<size_t>(count));
        for (size_t end = text_.find('\n'); end != std::string::npos; end = text_.find('\n')) {
            obey(text_.substr(0, end));
            text_.erase(0, end + 1);
            std::printf("ok\n");
            std::fflush(stdout);
        }
        return true;
    }

    void obey(const std::string& line) {
        std::istringstream words(line);
        std::string verb, from, to;
        words >> verb >> from >> to;
        if (verb == "clear") return rules_.assign(rules_.size(), Rule{});
        Rule made;
        const std::map<std::string, double Rule::*> fields = {
            {"delay_ms", &Rule::delay_ms}, {"jitter_ms", &Rule::jitter_ms},
            {"loss", &Rule::loss},         {"twice", &Rule::twice},
            {"corrupt", &Rule::corrupt},   {"change", &Rule::change},
            {"rate", &Rule::rate},         {"larger", &Rule::larger}};
        for (std::string word; words >> word;) {
            const size_t equals = word.find('=');
            made.*fields.at(word.substr(0, equals)) = std::stod(word.substr(equals + 1));
        }
        for (size_t i = 1; i < ports_.size(); ++i)
            for (size_t j = 1; j < ports_.size(); ++j)
                if (i != j && (from == "*" || std::stoul(from) == i) &&
                    (to == "*" || std::stoul(to) == j))
                    rule(i, j) = made;
    }

    void take_frames(size_t from) {
        std::vector<unsigned char> bytes(kFrameBytesMax);
        for (int i = 0; i < 256; ++i) {
            const ssize_t count = ::recv(ports_[from], bytes.data(), bytes.size(), 0);
            if (count < static_cast<ssize_t>(kHeaderBytes + kEthernetBytes)) return;
            forward(from, {bytes.begin(), bytes.begin() + count});
        }
    }

    void forward(size_t from, std::vector<unsigned char> frame) {
        const unsigned char* const ethernet = frame.data() + kHeaderBytes;
        std::array<unsigned char, 6> source{}, target{};
        std::memcpy(target.data(), ethernet, 6);
        std::memcpy(source.data(), ethernet + 6, 6);
        places_[source] = from;
        const auto known = places_.find(target);
        for (size_t to = 0; to < ports_.size(); ++to) {
            if (to == from || (known != places_.end() && known->second != to)) continue;
            pass(from, to, frame);
        }
    }

    void pass(size_t from, size_t to, std::vector<unsigned char> frame) {
        Rule& rule = this->rule(from, to);
        if (happens(rule.loss) || is_too_large(rule, frame)) return;
        if (happens(rule.corrupt)) corrupt(frame, true);
        if (happens(rule.change)) corrupt(frame, false);
        const auto now = Clock::now();
        auto due = now;
        if (rule.rate > 0) {
            const auto begin = std::max(now, rule.free_at);
            if (begin - now > kQueueTimeMax) return;  // the queue is full
            rule.free_at = begin + Nanoseconds(static_cast<int64_t>(
                                       static_cast<double>(frame.size()) * 1e9 / rule.rate));
            due = rule.free_at;
        }
        double late_ms = rule.delay_ms;
        if (rule.jitter_ms > 0)
            late_ms += std::uniform_real_distribution<>(0, rule.jitter_ms)(random_);
        due += Nanoseconds(static_cast<int64_t>(late_ms * 1e6));
        due = std::max(due, rule.last_at);
        rule.last_at = due;
        if (happens(rule.twice)) waiting_.push({due, ++order_, to, frame});
        waiting_.push({due, ++order_, to, std::move(frame)});
    }

    static bool is_too_large(const Rule& rule, const std::vector<unsigned char>& frame) {
        if (rule.larger == 0) return false;
        FrameHeader header{};
        std::memcpy(&header, frame.data(), sizeof header);
        const size_t whole = frame.size() - kHeaderBytes - kEthernetBytes;
        // A frame that the system will divide later contains packets of this size.
        const size_t packet = header.gso_size == 0 ? whole : header.gso_size + 52U;
        return static_cast<double>(packet) > rule.larger;
    }

    // Changes one byte of the TCP segment. If not SEEN, changes the payload, and the receiver does
    // not notice it, because the checksum is computed later from the changed bytes. If SEEN,
    // changes the checksum, so that the receiver notices it.
    static void corrupt(std::vector<unsigned char>& frame, bool seen) {
        const unsigned char* const ip = frame.data() + kHeaderBytes + kEthernetBytes;
        if (frame.size() < kHeaderBytes + kEthernetBytes + 40 || ip[0] >> 4 != 4 || ip[9] != 6)
            return;
        const size_t tcp = kHeaderBytes + kEthernetBytes + static_cast<size_t>(ip[0] & 15) * 4;
        const size_t payload = tcp + static_cast<size_t>(frame[tcp + 12] >> 4) * 4;
        if (frame.size() <= payload) return;
        if (!seen) {
            frame[payload + (frame.size() - payload) / 2] ^= 0x10;
            return;
        }
        // The checksum is wrong and marked as final, so the receiver checks it and drops the
        // packet.
        FrameHeader header{};
        std::memcpy(&header, frame.data(), sizeof header);
        header.flags = 0;
        if (header.gso_type != 0) return;
        std::memcpy(frame.data(), &header, sizeof header);
        frame[tcp + 16] ^= 0x5a;
    }

    void send_due() {
        const auto now = Clock::now();
        while (!waiting_.empty() && waiting_.top().due <= now) {
            const Waiting& next = waiting_.top();
            if (::send(ports_[next.to], next.frame.data(), next.frame.size(), 0) < 0)
                std::fprintf(stderr, "wire: %zu bytes: %s\n", next.frame.size(),
                             std::strerror(errno));
            waiting_.pop();
        }
    }

    std::vector<int> ports_;
    std::vector<Rule> rules_;
    std::map<std::array<unsigned char, 6>, size_t> places_;
    std::priority_queue<Waiting> waiting_;
    uint64_t order_ = 0;
    std::mt19937_64 random_{20'250'705};
    std::string text_;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: wire PREFIX COUNT\n");
        return 2;
    }
    // If the wire had to wait for a processor, it would itself slow the network down.
    sched_param priority{};
    priority.sched_priority = 1;
    (void)::sched_setscheduler(0, SCHED_RR, &priority);
    Wire wire(argv[1], static_cast<size_t>(std::atoi(argv[2])));
    std::printf("ok\n");
    std::fflush(stdout);
    wire.run();
    return 0;
}

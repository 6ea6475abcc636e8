// Probes over loopback: against a good server, no server, a silent one, one of another job, and
// over a path that changes bytes. Also the search that combines probes.
#include "runtime/comm/link_probe.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.h"
#include "health/health_schedule.h"
#include "runtime/comm/pair_search.h"
#include "support/catch.h"
#include "support/hang.h"
#include "support/listener.h"
#include "support/map_board.h"

using namespace dslaunch;
using namespace dslaunch::health;
using namespace dslaunch::runtime;
using namespace dslaunch::test;
using namespace std::chrono_literals;

namespace {

constexpr ProbeToken kToken = {17, 4};

// Returns limits for few words and small bursts, with time for each on a busy machine.
ProbeLimits quick() {
    ProbeLimits limits;
    limits.connect = limits.latency = limits.burst = kHangTime;
    limits.exchanges_max = 50;
    limits.burst_bytes_max = 1 << 20;
    return limits;
}

// One direction of a path. It flips one bit of byte FIRST, and of every EVERY-th byte after it.
struct Flips {
    int64_t first = -1;  // -1: nothing is changed
    int64_t every = 1 << 30;
    int connections = 1 << 30;  // so many connections are changed, the others are not
};

// Passes bytes on between probes and a server, with one connection after the other.
class BadWay {
  public:
    BadWay(int to_port, Flips there, Flips back = {})
        : here_(listen_on_loopback()), thread_([this, to_port, there, back] {
              for (int i = 0;; ++i) {
                  const UniqueFd probe(::accept(here_.fd.get(), nullptr, nullptr));
                  if (!probe.valid()) return;
                  const UniqueFd server = connect_to(to_port);
                  std::thread returning([&] {
                      carry(server.get(), probe.get(), i < back.connections ? back : Flips());
                  });
                  carry(probe.get(), server.get(), i < there.connections ? there : Flips());
                  returning.join();
              }
          }) {}
    ~BadWay() {
        ::shutdown(here_.fd.get(), SHUT_RDWR);
        thread_.join();
    }
    [[nodiscard]] int port() const { return here_.port; }

  private:
    // Passes on all bytes until either end closes: an end that has received enough may close first.
    static void carry(int from, int to, const Flips& flips) {
        std::vector<std::byte> bytes(4096);
        int64_t passed = 0;
        int64_t next = flips.first;
        for (ssize_t count; (count = ::read(from, bytes.data(), bytes.size())) > 0;) {
            for (; next >= passed && next < passed + count; next += flips.every)
                bytes[next - passed] ^= std::byte{4};
            passed += count;
            ssize_t sent = 0, last = 0;
            while (sent < count &&
                   (last = ::send(to, bytes.data() + sent, static_cast<size_t>(count - sent),
                                  MSG_NOSIGNAL)) > 0)
                sent += last;
            if (sent < count) break;
        }
        ::shutdown(to, SHUT_WR);
        ::shutdown(from, SHUT_RD);
    }

    Listener here_;
    std::thread thread_;
};

// A connection's bytes: 16 of the token, messages of 32, then a burst's request and its words.
constexpr int64_t kTokenBytes = 16;
constexpr int64_t kMessageBytes = 32;

}  // namespace

TEST_CASE("a probe of a good way finds every word right, a rate and round trips") {
    const ProbeServer server("127.0.0.1", kToken);
    const LinkSample sample =
        probe_link({"127.0.0.1", "127.0.0.1", server.port()}, kToken, quick()).way;
    INFO(sample.error);
    CHECK(sample.error.empty());
    CHECK(sample.exchanges == 50);
    CHECK(sample.wrong == 0);
    CHECK(sample.rtt_p50 > 0);
    CHECK(sample.rtt_p99 >= sample.rtt_p50);
    CHECK(sample.bytes_per_second > 0);
    CHECK(sample.free_bytes_per_second >= sample.bytes_per_second);
}

TEST_CASE("one bit changed on the way is one wrong word") {
    const ProbeServer server("127.0.0.1", kToken);
    const BadWay way(server.port(), {30'000});
    const ProbeResult result = probe_link({"", "127.0.0.1", way.port()}, kToken, quick());
    CHECK(result.way.wrong == 1);
    CHECK(result.wrong_back == 0);
}

// 50 small messages are sent; a burst's request follows.
TEST_CASE(
    "a way that changes bytes is found by whichever packet it changes, and called nothing "
    "else") {
    const int64_t request = kTokenBytes + 50 * kMessageBytes;
    struct Case {
        const char* changed;
        Flips there, back;
        bool reaches;  // messages are exchanged nevertheless
    };
    const Case cases[] = {
        {"the first opening", {0, 1 << 30, 1}, {}, true},
        {"every opening", {5}, {}, false},
        {"every eighth byte", {3, 8}, {}, false},
        {"every byte", {0, 1}, {}, false},
        {"the first message", {kTokenBytes}, {}, true},
        {"a message's kind", {kTokenBytes + kMessageBytes}, {}, true},
        {"a burst's request", {request}, {}, true},
        {"a burst's length", {request + 17}, {}, true},
        {"the first word of a burst", {request + kMessageBytes}, {}, true},
        {"the answer to the opening", {}, {9}, true},
        {"an answer to a message", {}, {32 + 5}, true},
        {"an answer to a burst", {}, {32 + 50 * kMessageBytes + 1}, true},
        {"every 16th byte of the answers", {}, {1, 16}, true},
        {"every opening and its answer", {5}, {7, 8}, false},
    };
    const ProbeServer server("127.0.0.1", kToken);
    for (const Case& one : cases) {
        const BadWay way(server.port(), one.there, one.back);
        const ProbeResult result = probe_link({"", "127.0.0.1", way.port()}, kToken, quick());
        INFO(one.changed << ": " << result.way.error);
        CHECK(result.way.error.empty());
        CHECK((result.way.wrong > 0) == (one.there.first >= 0));
        CHECK((result.wrong_back > 0) == (one.back.first >= 0));
        CHECK((result.way.exchanges > 0) == one.reaches);
    }
}

// The peer answers the first word of such a burst, and the prober stops sending.
TEST_CASE("a large burst whose request was changed ends with what was changed") {
    const ProbeServer server("127.0.0.1", kToken);
    ProbeLimits limits = quick();
    limits.burst_bytes_min = limits.burst_bytes_max = 64 << 20;
    const BadWay way(server.port(), {kTokenBytes + 50 * kMessageBytes});
    const ProbeResult result = probe_link({"", "127.0.0.1", way.port()}, kToken, limits);
    INFO(result.way.error);
    CHECK(result.way.error.empty());
    CHECK(result.way.wrong == 1);
}

TEST_CASE("a server of another job, none, and one that is silent are told apart") {
    const ProbeServer server("127.0.0.1", kToken);
    const ProbePlace good{"", "127.0.0.1", server.port()};
    CHECK_THAT(probe_link(good, {1, 2}, quick()).way.error,
               Catch::Contains("does not answer like a rank of this job"));
    int free_port = 0;
    { free_port = listen_on_loopback().port; }
    CHECK_THAT(probe_link({"", "127.0.0.1", free_port}, kToken, quick()).way.error,
               Catch::Contains("refused"));
    const Listener silent = listen_on_loopback();
    ProbeLimits impatient = quick();
    impatient.connect = 400ms;
    CHECK_THAT(probe_link({"", "127.0.0.1", silent.port}, kToken, impatient).way.error,
               Catch::Contains("does not answer"));
}

TEST_CASE(
    "a probe passes beside strangers who hold more connections than the server has room for") {
    const ProbeServer server("127.0.0.1", kToken);
    std::vector<UniqueFd> strangers;
    for (size_t i = 0; i < launch::kGuestsMax + 50; ++i) {
        strangers.push_back(connect_to(server.port()));
        REQUIRE(strangers.back().valid());
        // Half of them send half a token.
        if (i % 2 == 0) REQUIRE(write_full(strangers.back().get(), "12345678") == 0);
    }
    const LinkSample sample = probe_link({"", "127.0.0.1", server.port()}, kToken, quick()).way;
    INFO(sample.error);
    CHECK(sample.error.empty());
    CHECK(sample.exchanges == 50);
    // Strangers that never send the rest are sent away, after seconds. This bound only checks that
    // they are.
    pollfd last{strangers.back().get(), POLLIN, 0};
    CHECK(::poll(&last, 1, 25'000) == 1);
}

TEST_CASE("a server ends while a probe is under way, and names an address it cannot use") {
    auto server = std::make_unique<ProbeServer>("127.0.0.1", kToken);
    ProbeLimits endless = quick();
    endless.exchanges_max = 1 << 30;
    const ProbePlace place{"", "127.0.0.1", server->port()};
    std::string error;
    std::thread probe([&] { error = probe_link(place, kToken, endless).way.error; });
    std::this_thread::sleep_for(50ms);
    server.reset();
    probe.join();
    CHECK_FALSE(error.empty());
    CHECK_THROWS_AS(ProbeServer("192.0.2.1", kToken), Error);
    CHECK_THROWS_AS(ProbeServer("localhost", kToken), Error);
}

TEST_CASE("a meeting names who does not come, and its first member when that one is missing") {
    MapBoard board;
    std::vector<int> seen;
    std::thread second([&] { seen = meet(board, {"m", {0, 1, 2}, 1, kHangTime}); });
    CHECK(board.get("m/1", kHangTime));  // the rank has come
    CHECK(meet(board, {"m", {0, 1, 2}, 0, 300ms}) == std::vector<int>{2});
    second.join();
    CHECK(seen == std::vector<int>{2});
    CHECK(meet(board, {"other", {0, 1}, 1, 10ms}) == std::vector<int>{0});
    CHECK(meet(board, {"alone", {0}, 0, 10ms}).empty());
}

TEST_CASE("a search measures every way once each, and blames the rank that does not come") {
    for (const int missing : {-1, 2}) {
        MapBoard board;
        std::mutex mutex;
        std::set<NodeLink> measured;
        std::atomic<int> hung = 0;
        std::vector<std::thread> nodes;
        for (int node = 0; node < 3; ++node) {
            if (node == missing) continue;
            nodes.emplace_back([&, node] {
                PairSearchOptions options;
                options.topology = {{1, 2, 1}, node, 0};
                options.address = "127.0.0.1";
                options.limits = quick();
                // A search gives up a rank after these times and some seconds; nothing is probed
                // then.
                if (missing >= 0)
                    options.limits.connect = options.limits.latency = options.limits.burst = 400ms;
                const auto keep = [&](const HealthRecord& record) {
                    const std::lock_guard lock(mutex);
                    if (const auto* link = std::get_if<LinkSample>(&record))
                        measured.insert({static_cast<int>(link->from), static_cast<int>(link->to)});
                };
                try {
                    (void)search_pairs(options, {board, keep, [](const std::string&, Duration) {}});
                } catch (const Error& error) {
                    // Node 2 is rank 3, because node 1 has two ranks.
                    const bool named = std::string(error.what()).find("rank 3") == 0;
                    hung += error.code() == ExitCode::kHang && named ? 1 : 0;
                }
            });
        }
        for (std::thread& node : nodes) node.join();
        CHECK(hung == (missing < 0 ? 0 : 2));
        CHECK(measured.size() == (missing < 0 ? 9U : 0U));
    }
}

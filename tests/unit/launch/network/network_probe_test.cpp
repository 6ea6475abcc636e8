#include "launch/network/network_probe.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "base/error.h"
#include "launch/network/guests.h"
#include "launch/network/interfaces.h"
#include "support/catch.h"
#include "support/hang.h"
#include "support/listener.h"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kAnswerMax(200);
// The time of the probes does not advance, unless a test gives another time.
constexpr NetworkProbe::Time kBegin{};

// Lets PROBE do what it can do now. Returns true if it did something.
bool serve(NetworkProbe& probe) {
    bool served = false;
    for (const NetworkProbe::Watch& entry : probe.watch()) {
        pollfd polled{entry.fd, entry.events, 0};
        if (::poll(&polled, 1, 0) <= 0) continue;
        probe.ready(entry.fd);
        served = true;
    }
    return served;
}

// Lets all probes do what they can until ASKING still waits for UNDECIDED connections. ASKING
// itself does not listen.
void pass_words(const NetworkProbe& asking, const std::vector<NetworkProbe*>& all,
                size_t undecided = 0) {
    const auto limit = steady_clock::now() + test::kHangTime;
    while (asking.watch().size() > undecided) {
        REQUIRE(steady_clock::now() < limit);
        for (NetworkProbe* probe : all) static_cast<void>(serve(*probe));
        std::this_thread::sleep_for(milliseconds(1));
    }
}

ListenRequest listen_request(int64_t node, const std::string& key = "key") {
    ListenRequest request;
    request.addresses = {"127.0.0.1"};
    request.node = node;
    request.key = key;
    return request;
}

ProbeRequest probe_request(std::vector<ProbeRequest::Target> targets,
                           const std::string& key = "key") {
    ProbeRequest request;
    request.targets = std::move(targets);
    request.time_max_ms = kAnswerMax.count();
    request.key = key;
    return request;
}

}  // namespace

TEST_CASE("who listens is reached, by the interface that leads there") {
    NetworkProbe host;
    NetworkProbe other;
    const ListenReply places = host.listen(listen_request(3));
    REQUIRE(places.places.size() == 1);
    CHECK(places.places[0].error.empty());
    CHECK(places.places[0].numeric == "127.0.0.1");
    CHECK(places.places[0].interface == "lo");
    CHECK(places.clock_ns > 0);
    other.begin(probe_request({{3, "127.0.0.1", places.places[0].port}}), kBegin);
    CHECK_FALSE(other.take_reply(kBegin));
    pass_words(other, {&host, &other});
    const auto reply = other.take_reply(kBegin);
    REQUIRE(reply);
    REQUIRE(reply->results.size() == 1);
    CHECK(reply->results[0].error.empty());
    CHECK(reply->results[0].own_address == "127.0.0.1");
    CHECK(reply->results[0].interface == "lo");
    CHECK_FALSE(other.take_reply(kBegin + kAnswerMax));
}

TEST_CASE("who is not reached is told with the cause, in bounded time") {
    NetworkProbe wrong_node;
    NetworkProbe wrong_key;
    NetworkProbe silent;  // a process that never looks
    NetworkProbe other;
    const int64_t wrong_node_port = wrong_node.listen(listen_request(7)).places[0].port;
    const int64_t wrong_key_port = wrong_key.listen(listen_request(1, "loc")).places[0].port;
    const int64_t silent_port = silent.listen(listen_request(1)).places[0].port;
    int64_t closed_port = 0;
    {
        NetworkProbe gone;
        closed_port = gone.listen(listen_request(1)).places[0].port;
    }
    other.begin(probe_request({{1, "127.0.0.1", wrong_node_port},
                               {1, "127.0.0.1", wrong_key_port},
                               {1, "127.0.0.1", silent_port},
                               {1, "127.0.0.1", closed_port},
                               {1, "no address", 1}}),
                kBegin);
    pass_words(other, {&wrong_node, &wrong_key, &other}, 1);
    CHECK(other.deadline() == kBegin + kAnswerMax);
    CHECK_FALSE(other.take_reply(kBegin + kAnswerMax - milliseconds(1)));
    const auto reply = other.take_reply(kBegin + kAnswerMax);
    REQUIRE(reply);
    const char* const causes[] = {"another host answers there", "", "no answer within 0.2 s",
                                  "Connection refused", "it is not an address"};
    REQUIRE(reply->results.size() == std::size(causes));
    for (size_t i = 0; i < reply->results.size(); ++i) {
        INFO(i << ": " << reply->results[i].error);
        CHECK_FALSE(reply->results[i].error.empty());
        CHECK_THAT(reply->results[i].error, Catch::Contains(causes[i]));
    }
}

// The key and its answer pass a path that changes one bit of the first CHANGED connections.
TEST_CASE("a way that changes the first bytes is no stranger and no second host") {
    const std::string key = "0123456789abcdef";
    for (const bool there : {true, false}) {
        for (const int changed : {1, kGuestOpeningsMax}) {
            INFO("there " << there << ", " << changed << " connections");
            NetworkProbe host;
            NetworkProbe other;
            const int64_t port = host.listen(listen_request(3, key)).places[0].port;
            test::Listener way = test::listen_on_loopback();
            other.begin(probe_request({{3, "127.0.0.1", way.port}}, key), kBegin);
            for (int connection = 0; !other.watch().empty(); ++connection) {
                REQUIRE(connection <= changed);
                const UniqueFd probe(::accept(way.fd.get(), nullptr, nullptr));
                while (serve(other)) {
                }
                const UniqueFd server = test::connected_to(port);
                const auto pass = [&](int from, int to, size_t bytes, bool flips) {
                    std::string text(bytes, '\0');
                    REQUIRE(::recv(from, text.data(), bytes, MSG_WAITALL) ==
                            static_cast<ssize_t>(bytes));
                    if (flips) text[3] ^= 8;
                    REQUIRE(write_full(to, text) == 0);
                };
                const bool flips = connection < changed;
                pass(probe.get(), server.get(), key.size(), flips && there);
                while (serve(host)) {
                }
                pass(server.get(), probe.get(), kGuestAnswerBytes, flips && !there);
                while (serve(other)) {
                }
            }
            const auto reply = other.take_reply(kBegin);
            REQUIRE(reply);
            INFO(reply->results[0].error);
            if (changed == 1) {
                CHECK(reply->results[0].error.empty());
            } else {
                CHECK_THAT(
                    reply->results[0].error,
                    Catch::Contains("arrived changed") &&
                        Catch::Contains(there ? "data sent there" : "data sent back from there"));
            }
        }
    }
}

TEST_CASE("the socket that is kept is clean, and nothing else listens any more") {
    NetworkProbe host;
    ListenRequest request = listen_request(0);
    request.addresses = {"127.0.0.1", "127.0.0.2"};
    const ListenReply places = host.listen(request);
    const UniqueFd stranger = test::connected_to(places.places[0].port);  // waits in the queue
    const MeetingSocket kept = host.keep("127.0.0.1");
    REQUIRE(kept.socket.valid());
    CHECK(kept.where.port == places.places[0].port);
    CHECK(host.watch().empty());
    pollfd polled{kept.socket.get(), POLLIN, 0};
    CHECK(::poll(&polled, 1, 0) == 0);
    const UniqueFd late(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(places.places[1].port));
    ::inet_pton(AF_INET, "127.0.0.2", &address.sin_addr);
    CHECK(::connect(late.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0);
}

TEST_CASE("an address that cannot be bound is told, a given port that cannot be had is an error") {
    NetworkProbe host;
    ListenRequest request = listen_request(0);
    request.addresses = {"127.0.0.1", "192.0.2.1"};  // nobody has the second address
    const ListenReply reply = host.listen(request);
    CHECK(reply.places[0].error.empty());
    CHECK_THAT(reply.places[1].error, Catch::Contains("Cannot assign requested address"));
    NetworkProbe second;
    request.addresses = {"127.0.0.1"};
    request.port = reply.places[0].port;
    CHECK_THROWS_WITH(second.listen(request),
                      Catch::Contains("Address already in use") && Catch::Contains("by process "));
}

TEST_CASE("strangers who connect to the waiting socket learn nothing and are forgotten") {
    NetworkProbe host;
    NetworkProbe other;
    const int64_t port = host.listen(listen_request(0)).places[0].port;
    std::vector<UniqueFd> strangers;
    for (int i = 0; i < 300; ++i) {
        strangers.push_back(test::connected_to(port));
        const std::string noise = i % 2 == 0 ? "GET / HTTP/1.0\r\n\r\n" : "k";
        REQUIRE(::send(strangers.back().get(), noise.data(), noise.size(), MSG_NOSIGNAL) > 0);
    }
    other.begin(probe_request({{0, "127.0.0.1", port}}), kBegin);
    // Strangers that have sent half a key keep their places until the choice is made.
    pass_words(other, {&host, &other});
    char byte = 0;
    CHECK(::recv(strangers[0].get(), &byte, 1, MSG_DONTWAIT) <= 0);
}

TEST_CASE("a host is answered while hundreds of strangers hold connections and more come") {
    NetworkProbe host;
    NetworkProbe other;
    const ListenReply places = host.listen(listen_request(3, std::string(64, 'k')));
    const int64_t port = places.places.front().port;
    std::vector<UniqueFd> strangers;
    const auto more_come = [&](int count) {
        for (int i = 0; i < count; ++i) strangers.push_back(test::connected_to(port));
        while (serve(host)) {
        }
    };
    more_come(300);
    // 300 strangers are connected and send nothing, or a part of the key.
    for (size_t i = 0; i < strangers.size(); i += 2)
        static_cast<void>(::send(strangers[i].get(), "kkkk", 4, MSG_NOSIGNAL));
    ProbeRequest request = probe_request({{3, "127.0.0.1", port}}, std::string(64, 'k'));
    request.time_max_ms = 60'000;
    other.begin(request, kBegin);
    for (int i = 0; i < 10; ++i) {
        static_cast<void>(serve(other));
        for (int k = 0; k < 10; ++k) strangers.push_back(test::connected_to(port));
        static_cast<void>(serve(host));
    }
    pass_words(other, {&host, &other});
    const auto reply = other.take_reply(kBegin);
    REQUIRE(reply);
    CHECK(reply->results.front().error.empty());
    // A stranger that sends nothing is sent away after a while.
    static_cast<void>(host.take_reply(steady_clock::now() + std::chrono::seconds(6)));
    CHECK(host.watch().size() == 1);
}

TEST_CASE("names of interfaces for guests are known") {
    for (const char* name :
         {"docker0", "br-0123456789ab", "virbr0", "veth12ab", "cni0", "flannel.1"})
        CHECK(is_for_guests(name));
    for (const char* name : {"eth0", "ens3", "ib0", "br0", "bond0", "enp1s0", "lo"})
        CHECK_FALSE(is_for_guests(name));
}

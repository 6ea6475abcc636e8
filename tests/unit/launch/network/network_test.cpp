#include "launch/network/network.h"

#include <set>

#include "base/error.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

InterfaceAddress address(const std::string& interface, const std::string& digits,
                         int64_t speed_mbit = -1) {
    InterfaceAddress entry;
    entry.interface = interface;
    entry.address = digits;
    entry.speed_mbit = speed_mbit;
    entry.up = true;
    entry.for_guests = interface.starts_with("docker");
    return entry;
}

// Returns hosts n0, n1, … Each has eth0 10.0.0.x (the address that ssh used), a faster eth1
// 10.1.0.x, and a docker0 that is the same everywhere.
std::vector<NetworkHost> cluster(size_t count) {
    std::vector<NetworkHost> hosts;
    for (size_t i = 0; i < count; ++i) {
        const std::string number = std::to_string(i + 1);
        hosts.push_back(
            {"n" + std::to_string(i),
             "machine" + number,
             "10.0.0." + number,
             {address("docker0", "172.17.0.1"), address("eth1", "10.1.0." + number, 100'000),
              address("eth0", "10.0.0." + number, 1000)}});
        hosts.back().addresses.push_back(address("lo", "127.0.0.1"));
        hosts.back().addresses.back().loopback = true;
    }
    return hosts;
}

std::string network_of(const std::string& digits) {
    return digits.substr(0, digits.rfind('.'));
}

// Returns the results of all probes if the networks in GOOD connect all hosts and the other
// networks connect none.
std::vector<NetworkProbeResult> answers(const std::vector<NetworkHost>& hosts,
                                        const std::vector<NetworkProbePlan>& plan,
                                        const std::set<std::string>& good) {
    std::vector<NetworkProbeResult> results;
    for (const NetworkProbePlan& probe : plan) {
        NetworkProbeResult result{probe.from, probe.to, probe.address, {}, {}, "No route to host"};
        for (const InterfaceAddress& own : hosts[probe.from].addresses) {
            if (network_of(own.address) != network_of(probe.address)) continue;
            result.own_address = own.address;
            result.interface = own.interface;
            if (good.contains(network_of(own.address))) result.error.clear();
        }
        results.push_back(result);
    }
    return results;
}

NetworkChoice chosen(const std::vector<NetworkHost>& hosts, const std::set<std::string>& good,
                     ProbeScope scope = ProbeScope::kEverything) {
    const auto candidates = plan_candidates(hosts);
    return choose_network(hosts, candidates, answers(hosts, plan_probes(candidates, scope), good));
}

std::vector<std::string> addresses_of(const std::vector<NetworkCandidate>& candidates) {
    std::vector<std::string> list;
    for (const NetworkCandidate& candidate : candidates) list.push_back(candidate.address);
    return list;
}

}  // namespace

TEST_CASE("where ssh arrived comes first, then the fastest link, then the name") {
    auto hosts = cluster(2);
    CHECK(addresses_of(plan_candidates(hosts)[0]) ==
          std::vector<std::string>{"10.0.0.1", "10.1.0.1"});
    hosts[0].arrival_address.clear();
    CHECK(addresses_of(plan_candidates(hosts)[0]) ==
          std::vector<std::string>{"10.1.0.1", "10.0.0.1"});
    hosts[0].addresses = {address("eth9", "10.9.0.1"),    address("eth2", "fd00::1"),
                          address("eth3", "10.3.0.1"),    address("eth3", "fe80::1"),
                          address("eth4", "169.254.0.9"), address("docker7", "172.18.0.1")};
    CHECK(addresses_of(plan_candidates(hosts)[0]) ==
          std::vector<std::string>{"10.3.0.1", "10.9.0.1", "fd00::1", "172.18.0.1"});
    hosts[0].addresses = {address("eth0", "10.3.0.1")};
    hosts[0].addresses[0].up = false;
    CHECK(plan_candidates(hosts)[0].empty());
}

TEST_CASE("a speed that is no speed counts as one that is not told") {
    auto hosts = cluster(1);
    hosts[0].arrival_address.clear();
    hosts[0].addresses = {address("eth0", "10.0.0.1", INT64_MIN), address("eth1", "10.1.0.1", -1),
                          address("eth2", "10.2.0.1", 10)};
    const auto candidates = plan_candidates(hosts);
    REQUIRE(candidates[0].size() == 3);
    CHECK(candidates[0][0].interface == "eth2");
    CHECK(candidates[0][1].interface == "eth0");
    CHECK(candidates[0][2].interface == "eth1");
}

TEST_CASE("an address that two machines have is none, unless both are one machine") {
    auto hosts = cluster(3);
    for (const auto& candidates : plan_candidates(hosts)) {
        for (const NetworkCandidate& candidate : candidates)
            CHECK(candidate.address != "172.17.0.1");
    }
    // A machine with two names probes its own addresses.
    hosts = {cluster(1)[0], cluster(1)[0]};
    hosts[1].name = "other";
    CHECK(plan_candidates(hosts)[0].size() == 3);
}

TEST_CASE("the chosen network connects every host, with the interface that each has there") {
    auto hosts = cluster(4);
    hosts[2].addresses[2].interface = "ens7";  // eth0 elsewhere
    NetworkChoice choice = chosen(hosts, {"10.0.0", "10.1.0"}, ProbeScope::kLikely);
    REQUIRE(choice.found);
    CHECK(choice.meeting.address == "10.0.0.1");
    CHECK(choice.meeting.reason == "the ssh connection arrived there");
    CHECK(choice.interfaces == std::vector<std::string>{"eth0", "eth0", "ens7", "eth0"});
    // ssh's network does not connect the hosts with each other, so the other network is taken.
    CHECK_FALSE(chosen(hosts, {"10.1.0"}, ProbeScope::kLikely).found);
    choice = chosen(hosts, {"10.1.0"});
    REQUIRE(choice.found);
    CHECK(choice.meeting.address == "10.1.0.1");
    CHECK(choice.meeting.reason == "the fastest link, 100000 Mbit/s");
    CHECK(choice.interfaces == std::vector<std::string>{"eth1", "eth1", "eth1", "eth1"});
}

TEST_CASE("where no network connects the hosts, each failed way is told, equal ones together") {
    const NetworkChoice choice = chosen(cluster(3), {});
    CHECK_FALSE(choice.found);
    CHECK(choice.failures ==
          std::vector<std::string>{
              "n1 (from eth0), n2 (from eth0) cannot reach n0's 10.0.0.1: No route to host",
              "n1 (from eth1), n2 (from eth1) cannot reach n0's 10.1.0.1: No route to host"});
}

TEST_CASE("a pair of hosts that do not reach each other rules a network out") {
    const auto hosts = cluster(3);
    const auto candidates = plan_candidates(hosts);
    auto results = answers(hosts, plan_probes(candidates, ProbeScope::kLikely), {"10.0.0"});
    for (NetworkProbeResult& result : results) {
        if (result.from == 2 && result.to == 1) result.error = "Connection refused";
    }
    const NetworkChoice choice = choose_network(hosts, candidates, results);
    CHECK_FALSE(choice.found);
    CHECK(choice.failures.front() ==
          "n2 (from eth0) cannot reach n1's 10.0.0.2: Connection refused");
}

TEST_CASE("up to 16 hosts all pairs are tried, beyond that node 0 and a ring") {
    const auto pairs = [](size_t count) {
        std::set<std::pair<size_t, size_t>> found;
        for (const auto& probe :
             plan_probes(plan_candidates(cluster(count)), ProbeScope::kLikely)) {
            CHECK(probe.from != probe.to);
            CHECK(found.insert({probe.from, probe.to}).second);
        }
        return found;
    };
    CHECK(pairs(1).empty());
    CHECK(pairs(2).size() == 2);
    CHECK(pairs(16).size() == 16 * 15);
    const auto ring = pairs(17);
    // 16 probes to node 0, 16 from it, and 15 steps of a ring without node 0.
    CHECK(ring.size() == 16 + 16 + 15);
    for (size_t host = 1; host < 17; ++host) {
        CHECK(ring.contains({host, 0}));
        CHECK(ring.contains({0, host}));
        CHECK(ring.contains({host, (host + 1) % 17}));
    }
}

TEST_CASE(
    "what agents and launcher tell each other arrives as it was sent, and nothing else does") {
    ListenRequest listen;
    listen.addresses = {"10.0.0.1", "n1"};
    listen.port = 4711;
    listen.node = 3;
    listen.key = "key";
    const ListenRequest listen_again = decode<ListenRequest>(encode(listen));
    CHECK(listen_again.addresses == listen.addresses);
    CHECK(listen_again.port == 4711);
    CHECK(listen_again.node == 3);
    CHECK(listen_again.key == "key");
    ListenReply places;
    places.places = {{"n1", "10.0.0.1", "eth0", 4711, ""}, {"x", "", "", 0, "no such address"}};
    places.clock_ns = -5;
    const ListenReply places_again = decode<ListenReply>(encode(places));
    REQUIRE(places_again.places.size() == 2);
    CHECK(places_again.places[0].interface == "eth0");
    CHECK(places_again.places[1].error == "no such address");
    CHECK(places_again.clock_ns == -5);
    ProbeRequest probe;
    probe.targets = {{1, "10.0.0.2", 9}};
    probe.time_max_ms = 3000;
    CHECK(decode<ProbeRequest>(encode(probe)).targets.at(0).address == "10.0.0.2");
    ProbeReply reply;
    reply.results = {{1, "10.0.0.2", "10.0.0.1", "eth0", "refused"}};
    CHECK(decode<ProbeReply>(encode(reply)).results.at(0).error == "refused");
    CHECK(decode<ChooseRequest>(encode(ChooseRequest{"n1"})).address == "n1");
    // Messages that are cut off, too long, or with a wrong count are refused.
    const std::string bytes = encode(places);
    for (size_t length = 0; length < bytes.size(); ++length) {
        CHECK_THROWS_AS(decode<ListenReply>(bytes.substr(0, length)), Error);
    }
    CHECK_THROWS_AS(decode<ListenReply>(bytes + "x"), Error);
    CHECK_THROWS_AS(decode<ProbeReply>("\xff\xff\xff\xff"), Error);
}

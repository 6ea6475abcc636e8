// Tables of measured paths with one fault each, and the host, link or direction that must be named;
// noise, for which nobody may be named; and the schedule of the measurements.
#include "health/health_verdict.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::health;

namespace {

using Change = std::function<void(LinkSample&)>;
using Subject = HealthFinding::Subject;

// Returns all paths between HOST_COUNT hosts, and within them, as measured in a quiet 10 GB/s
// network.
HealthSamples healthy(int host_count, int passes = 1) {
    HealthSamples samples;
    for (int host = 0; host < host_count; ++host)
        samples.host_names.push_back(fmt::format("n{}", host));
    for (int pass = 1; pass <= passes; ++pass) {
        for (int from = 0; from < host_count; ++from) {
            for (int to = 0; to < host_count; ++to) {
                LinkSample sample;
                sample.from = from;
                sample.to = to;
                sample.pass = pass;
                sample.bytes_per_second = from == to ? 20'000'000'000 : 10'000'000'000;
                sample.free_bytes_per_second = sample.bytes_per_second;
                sample.rtt_p50 = 50'000;
                sample.rtt_p99 = 120'000;
                sample.exchanges = 1000;
                samples.links.push_back(sample);
            }
            samples.hosts.push_back({from, pass, 30'000'000});
        }
    }
    return samples;
}

bool is(const LinkSample& sample, int from, int to) {
    return sample.from == from && sample.to == to;
}

HealthSamples changed(int hosts, const std::function<bool(const LinkSample&)>& where,
                      const Change& change) {
    HealthSamples samples = healthy(hosts, 3);
    for (LinkSample& sample : samples.links)
        if (where(sample)) change(sample);
    return samples;
}

HealthFinding only_finding(const HealthSamples& samples) {
    const std::vector<HealthFinding> findings = judge(samples);
    for (const HealthFinding& finding : findings) INFO(finding.text);
    REQUIRE(findings.size() == 1);
    return findings.front();
}

const std::map<std::string, Change> kSymptoms = {
    {"slow", [](LinkSample& s) { s.free_bytes_per_second = 10'000'000; }},
    {"late", [](LinkSample& s) { s.rtt_p50 = s.rtt_p99 = 5'000'000; }},
    {"unsteady", [](LinkSample& s) { s.rtt_p99 = 40'000'000; }},
    {"lost", [](LinkSample& s) { s.lost = 9; }},
    {"duplicated", [](LinkSample& s) { s.duplicated = 20; }},
    {"arrived changed", [](LinkSample& s) { s.wrong = 1; }},
    {"no connection",
     [](LinkSample& s) {
         s.error = "no connection";
         s.bytes_per_second = s.free_bytes_per_second = s.exchanges = s.rtt_p50 = s.rtt_p99 = 0;
     }},
};

}  // namespace

TEST_CASE("a healthy network names nobody, whatever its size") {
    for (int hosts = 1; hosts <= 9; ++hosts) {
        CHECK(judge(healthy(hosts)).empty());
        CHECK(links_to_repeat(healthy(hosts), 1).empty());
    }
}

TEST_CASE("a bad host is named as a host, by every symptom and from three hosts on") {
    for (const auto& [words, change] : kSymptoms) {
        for (const int hosts : {3, 4, 5, 8}) {
            for (const int bad : {0, hosts - 1}) {
                INFO(words << ", host " << bad << " of " << hosts);
                const HealthFinding finding = only_finding(changed(
                    hosts,
                    [&](const LinkSample& s) {
                        return s.from != s.to && (s.from == bad || s.to == bad);
                    },
                    change));
                CHECK(finding.subject == Subject::kHost);
                CHECK(finding.nodes == std::vector<int64_t>{bad});
                CHECK_THAT(finding.text, Catch::Contains(fmt::format("n{}", bad)));
                CHECK_THAT(finding.text, Catch::Contains(words));
            }
        }
    }
}

TEST_CASE("changed answers, which only the way back's own counters do not see, name that way") {
    HealthSamples samples = healthy(4);
    LinkSample back;
    back.from = 2;
    back.to = 1;
    back.wrong = 1;
    samples.links.push_back(back);
    const HealthFinding finding = only_finding(samples);
    CHECK(finding.subject == Subject::kDirection);
    CHECK(finding.nodes == std::vector<int64_t>{2, 1});
    CHECK_THAT(finding.text, Catch::Contains("1 words of 8 bytes arrived changed"));
}

TEST_CASE("what is bad in one direction of a host is named with it") {
    const HealthFinding out = only_finding(changed(
        4, [](const LinkSample& s) { return s.from == 2 && s.to != 2; }, kSymptoms.at("slow")));
    CHECK(out.subject == Subject::kHost);
    CHECK_THAT(out.text, Catch::Contains("host n2, when it sends"));
    const HealthFinding in = only_finding(changed(
        4, [](const LinkSample& s) { return s.to == 2 && s.from != 2; }, kSymptoms.at("lost")));
    CHECK_THAT(in.text, Catch::Contains("host n2, when it receives"));
}

TEST_CASE("a bad link is named by both its ends, a bad direction by from and to") {
    for (const auto& [words, change] : kSymptoms) {
        for (const int hosts : {3, 4, 7}) {
            INFO(words << ", " << hosts << " hosts");
            const HealthFinding link = only_finding(changed(
                hosts, [](const LinkSample& s) { return is(s, 0, 2) || is(s, 2, 0); }, change));
            CHECK(link.subject == Subject::kLink);
            CHECK(link.nodes == std::vector<int64_t>{0, 2});
            if (words == "late" || words == "unsteady") continue;  // a round trip has no direction
            const HealthFinding way = only_finding(changed(
                hosts, [](const LinkSample& s) { return is(s, 2, 1); }, change));
            CHECK(way.subject == Subject::kDirection);
            CHECK(way.nodes == std::vector<int64_t>{2, 1});
        }
    }
}

TEST_CASE("two bad links without a common host are both named") {
    const HealthSamples samples = changed(
        4,
        [](const LinkSample& s) {
            return is(s, 0, 1) || is(s, 1, 0) || is(s, 2, 3) || is(s, 3, 2);
        },
        kSymptoms.at("slow"));
    CHECK(judge(samples).size() == 2);
}

TEST_CASE("of two hosts one way is compared with the other, and nothing else can be") {
    CHECK(
        only_finding(changed(
                         2, [](const LinkSample& s) { return is(s, 1, 0); }, kSymptoms.at("slow")))
            .subject == Subject::kDirection);
    CHECK(judge(changed(
                    2, [](const LinkSample& s) { return s.from != s.to; }, kSymptoms.at("slow")))
              .empty());
}

TEST_CASE("what affects every way is named as such") {
    CHECK(only_finding(
              changed(
                  4, [](const LinkSample& s) { return s.from != s.to; }, kSymptoms.at("lost")))
              .subject == Subject::kEverything);
}

TEST_CASE("what was bad once and not again is excused, but not a wrong word") {
    for (const auto& [words, change] : kSymptoms) {
        HealthSamples samples = healthy(4, 3);
        for (LinkSample& sample : samples.links)
            if (sample.pass == 1 && is(sample, 0, 1)) change(sample);
        INFO(words);
        CHECK(links_to_repeat(samples, 1).size() >= 7);  // the link and six to compare with
        CHECK(judge(samples).size() == (words == "arrived changed" ? 1U : 0U));
    }
}

TEST_CASE("a processor that is slow in every pass is named with its host") {
    HealthSamples samples = healthy(4, 3);
    for (HostSample& host : samples.hosts)
        if (host.node == 3) host.nanoseconds *= 10;
    const HealthFinding finding = only_finding(samples);
    CHECK(finding.nodes == std::vector<int64_t>{3});
    CHECK_THAT(finding.text, Catch::Contains("processor"));
}

TEST_CASE("faults of ranks are findings as they are") {
    HealthSamples samples = healthy(2);
    samples.faults.push_back({1, "rank 1: all_reduce: element 5 is 7, it should be 9"});
    const HealthFinding finding = only_finding(samples);
    CHECK(finding.subject == Subject::kRank);
    CHECK(finding.rank == 1);
}

TEST_CASE("rates that scatter by a factor of three name nobody") {
    // Log-uniform within [1, 3), like the effect of neighbours on a shared machine. 500 draws,
    // fixed seed.
    std::mt19937 generator(7);
    std::uniform_real_distribution<double> exponent(0, 1);
    int named = 0;
    for (int draw = 0; draw < 500; ++draw) {
        HealthSamples samples = healthy(4, 3);
        for (LinkSample& sample : samples.links) {
            const double factor = std::pow(3.0, exponent(generator));
            sample.free_bytes_per_second = static_cast<int64_t>(1e9 * factor);
            sample.rtt_p50 = static_cast<int64_t>(50'000 * factor);
        }
        named += judge(samples).empty() ? 0 : 1;
    }
    CHECK(named == 0);
}

TEST_CASE("rounds pair every host with every other once each way, nobody twice in a round") {
    for (int nodes = 1; nodes <= 17; ++nodes) {
        const std::vector<LinkRound> rounds = all_link_rounds(nodes);
        // Each of the n-1 (n if odd) pairings of a 1-factorization, in both directions.
        CHECK(rounds.size() == static_cast<size_t>(nodes < 2 ? 0 : 2 * (nodes - 1 + nodes % 2)));
        std::set<NodeLink> seen;
        for (const LinkRound& round : rounds) {
            std::set<int> busy;
            for (const NodeLink& link : round) {
                CHECK(link.from != link.to);
                CHECK(busy.insert(link.from).second);
                CHECK(busy.insert(link.to).second);
                CHECK(seen.insert(link).second);
            }
        }
        CHECK(seen.size() == static_cast<size_t>(nodes * (nodes - 1)));
    }
}

TEST_CASE("chosen links fit into rounds without a host in two places") {
    const std::vector<NodeLink> links = {{0, 1}, {1, 0}, {2, 3}, {0, 2}, {3, 1}};
    const std::vector<LinkRound> rounds = rounds_of(links);
    CHECK(rounds.size() == 3);
    size_t count = 0;
    for (const LinkRound& round : rounds) count += round.size();
    CHECK(count == links.size());
}

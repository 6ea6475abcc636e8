// libFuzzer entry: hosts report any interfaces, and any links between them work. The chosen network
// is one of node 0's that every host reaches, or there is a reason why there is none. The text has
// a line for each host: its machine, the address at which ssh arrived, then interface addresses as
// NAME=ADDRESS. Before an address, `-`, `~` and `+` mean down, loopback and for guests; `/SPEED`
// may follow it. The last line has letters for the links that fail.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "fuzz/error_checks.h"
#include "launch/network/network.h"

namespace {

using namespace dslaunch;
using namespace dslaunch::launch;
using Candidates = std::vector<std::vector<NetworkCandidate>>;

constexpr size_t kHostsMax = 20;  // more than kAllPairsHostsMax

InterfaceAddress read_address(std::string_view word) {
    InterfaceAddress entry;
    entry.up = true;
    for (; !word.empty(); word.remove_prefix(1)) {
        if (word.front() == '-') entry.up = false;
        if (word.front() == '~') entry.loopback = true;
        if (word.front() == '+') entry.for_guests = true;
        if (std::string_view("-~+").find(word.front()) == std::string_view::npos) break;
    }
    const size_t slash = std::min(word.find('/'), word.size());
    const auto speed = parse_int(word.substr(std::min(slash + 1, word.size())));
    entry.speed_mbit = speed.value_or(-1);
    word = word.substr(0, slash);
    const size_t equals = std::min(word.find('='), word.size());
    entry.interface = word.substr(0, equals);
    entry.address = word.substr(std::min(equals + 1, word.size()));
    return entry;
}

std::vector<NetworkHost> read_hosts(const std::vector<std::string>& lines) {
    std::vector<NetworkHost> hosts;
    for (size_t i = 0; i + 1 < lines.size() && i < kHostsMax; ++i) {
        const std::vector<std::string> words = split(lines[i], ' ');
        NetworkHost host;
        host.name = fmt::format("n{}", i);
        host.machine = words[0];
        if (words.size() > 1) host.arrival_address = words[1];
        for (size_t k = 2; k < words.size(); ++k) host.addresses.push_back(read_address(words[k]));
        hosts.push_back(std::move(host));
    }
    return hosts;
}

void check_candidates(const std::vector<NetworkHost>& hosts, const Candidates& candidates) {
    DSL_CHECK(candidates.size() == hosts.size(), "a list for each host");
    for (size_t i = 0; i < hosts.size(); ++i) {
        const auto& own = hosts[i].addresses;
        for (const NetworkCandidate& candidate : candidates[i]) {
            const bool is_own = std::any_of(own.begin(), own.end(), [&](const auto& entry) {
                return entry.address == candidate.address && !entry.loopback &&
                       (entry.up || entry.address == hosts[i].arrival_address);
            });
            DSL_CHECK(is_own, "a candidate is an address that its host has and may use");
            DSL_CHECK(!candidate.reason.empty(), "and says why it stands where it stands");
        }
    }
}

// Returns the result of each planned probe: it works unless its letter says that it fails.
std::vector<NetworkProbeResult> probe(const std::vector<NetworkHost>& hosts,
                                      const Candidates& candidates, const std::string& letters) {
    std::vector<NetworkProbeResult> results;
    for (const NetworkProbePlan& plan : plan_probes(candidates, ProbeScope::kEverything)) {
        DSL_CHECK(plan.from < hosts.size() && plan.to < hosts.size() && plan.from != plan.to,
                  "a way between two hosts");
        NetworkProbeResult result{plan.from, plan.to, plan.address, {}, {}, {}};
        const auto& own = candidates[plan.from];
        if (!own.empty()) {
            result.own_address = own.front().address;
            result.interface = own.front().interface;
        }
        const size_t i = results.size();
        if (i < letters.size() && letters[i] != '.') result.error = letters;
        results.push_back(std::move(result));
    }
    return results;
}

void check_choice(const std::vector<NetworkHost>& hosts, const Candidates& candidates,
                  const std::vector<NetworkProbeResult>& results) {
    const NetworkChoice choice = choose_network(hosts, candidates, results);
    if (!choice.found) {
        DSL_CHECK(choice.failures.size() <= kFailureLinesMax + 1, "a table that can be read");
        DSL_CHECK(!choice.failures.empty() || candidates.front().empty(), "why there is none");
        for (const std::string& line : choice.failures) fuzz::check_shown(line);
        return;
    }
    DSL_CHECK(choice.interfaces.size() == hosts.size(), "an interface for each host");
    DSL_CHECK(std::any_of(candidates[0].begin(), candidates[0].end(),
                          [&](const auto& c) { return c.address == choice.meeting.address; }),
              "the meeting is at an address of node 0");
    for (size_t host = 1; host < hosts.size(); ++host) {
        DSL_CHECK(std::any_of(results.begin(), results.end(),
                              [&](const auto& r) {
                                  return r.from == host && r.to == 0 && r.error.empty() &&
                                         r.address == choice.meeting.address;
                              }),
                  "host {} reaches it", host);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    const std::string_view text(reinterpret_cast<const char*>(data), size_bytes);
    const std::vector<std::string> lines = split(text, '\n');
    const std::vector<NetworkHost> hosts = read_hosts(lines);
    if (hosts.empty()) return 0;
    const Candidates candidates = plan_candidates(hosts);
    check_candidates(hosts, candidates);
    for (const auto& plan : plan_probes(candidates, ProbeScope::kLikely)) {
        DSL_CHECK(plan.address == candidates[plan.to].front().address, "the likely is the best");
    }
    check_choice(hosts, candidates, probe(hosts, candidates, lines.back()));
    return 0;
}

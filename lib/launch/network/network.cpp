#include "launch/network/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/text.h"

namespace dslaunch::launch {
namespace {

using Candidates = std::vector<std::vector<NetworkCandidate>>;

bool is_link_local(const std::string& address) {
    return address.starts_with("fe80:") || address.starts_with("169.254.");
}

bool is_ipv6(const std::string& address) {
    return address.find(':') != std::string::npos;
}

// Returns the addresses that more than one machine has.
std::set<std::string> shared_addresses(const std::vector<NetworkHost>& hosts) {
    std::map<std::string, std::set<std::string>> machines;
    for (const NetworkHost& host : hosts) {
        const std::string& machine = host.machine.empty() ? host.name : host.machine;
        for (const InterfaceAddress& entry : host.addresses) {
            if (!entry.loopback) machines[entry.address].insert(machine);
        }
    }
    std::set<std::string> shared;
    for (const auto& [address, owners] : machines) {
        if (owners.size() > 1) shared.insert(address);
    }
    return shared;
}

std::string reason_for(const NetworkHost& host, const InterfaceAddress& entry) {
    if (entry.address == host.arrival_address) return "the ssh connection arrived there";
    if (entry.for_guests) return "no better interface is left";
    if (entry.speed_mbit > 0) return fmt::format("the fastest link, {} Mbit/s", entry.speed_mbit);
    return "the first interface by name";
}

std::vector<NetworkCandidate> candidates_of(const NetworkHost& host,
                                            const std::set<std::string>& shared) {
    std::vector<const InterfaceAddress*> usable;
    for (const InterfaceAddress& entry : host.addresses) {
        const bool arrival = entry.address == host.arrival_address;
        if (entry.loopback || is_link_local(entry.address)) continue;
        if (!entry.up && !arrival) continue;
        if (!shared.contains(entry.address)) usable.push_back(&entry);
    }
    const auto rank = [&](const InterfaceAddress* entry) {
        return std::make_tuple(entry->address != host.arrival_address, entry->for_guests,
                               is_ipv6(entry->address), -std::max<int64_t>(entry->speed_mbit, -1),
                               entry->interface, entry->address);
    };
    std::sort(usable.begin(), usable.end(),
              [&](const auto* a, const auto* b) { return rank(a) < rank(b); });
    std::vector<NetworkCandidate> candidates;
    for (const InterfaceAddress* entry : usable) {
        candidates.push_back({entry->interface, entry->address, reason_for(host, *entry)});
    }
    return candidates;
}

// Returns the pairs (from, to) of hosts for which `from` must be able to connect to `to`
// (kAllPairsHostsMax).
std::vector<std::pair<size_t, size_t>> pairs(size_t count) {
    std::set<std::pair<size_t, size_t>> all;
    for (size_t from = 0; from < count; ++from) {
        for (size_t to = 0; count <= kAllPairsHostsMax && to < count; ++to) all.insert({from, to});
        all.insert({from, 0});
        all.insert({0, from});
        all.insert({from, (from + 1) % count});
    }
    std::erase_if(all, [](const auto& pair) { return pair.first == pair.second; });
    return {all.begin(), all.end()};
}

// The lines of the table of failures; hosts with the same failure share a line.
class Failures {
  public:
    explicit Failures(const std::vector<NetworkHost>& hosts) : hosts_(hosts) {}

    void add(const NetworkProbeResult& result) {
        const std::string from =
            hosts_[result.from].name +
            (result.interface.empty() ? "" : " (from " + printable(result.interface) + ")");
        const std::string what = fmt::format(" cannot reach {}'s {}: {}", hosts_[result.to].name,
                                             printable(result.address), printable(result.error));
        const auto [entry, is_new] = causes_.try_emplace(what);
        if (is_new) order_.push_back(what);
        if (std::find(entry->second.begin(), entry->second.end(), from) == entry->second.end()) {
            entry->second.push_back(from);
        }
    }
    [[nodiscard]] std::vector<std::string> lines() const {
        std::vector<std::string> lines;
        for (const std::string& what : order_) {
            lines.push_back(join(causes_.at(what), ", ") + what);
        }
        const size_t count = lines.size();
        if (count > kFailureLinesMax) {
            lines.resize(kFailureLinesMax);
            lines.push_back(fmt::format("… and {} more", count - kFailureLinesMax));
        }
        return lines;
    }

  private:
    const std::vector<NetworkHost>& hosts_;
    std::map<std::string, std::vector<std::string>> causes_;
    std::vector<std::string> order_;
};

class Chooser {
  public:
    Chooser(const std::vector<NetworkHost>& hosts, const std::vector<NetworkProbeResult>& results)
        : hosts_(hosts), failures_(hosts) {
        for (const NetworkProbeResult& result : results) {
            results_.insert_or_assign({result.from, result.to, result.address}, result);
        }
    }

    bool works(const NetworkCandidate& meeting, NetworkChoice& choice);
    [[nodiscard]] std::vector<std::string> failures() const { return failures_.lines(); }

  private:
    const NetworkProbeResult* reached(size_t from, size_t to, const std::string& address);

    const std::vector<NetworkHost>& hosts_;
    std::map<std::tuple<size_t, size_t, std::string>, NetworkProbeResult> results_;
    Failures failures_;
};

// Returns the result of FROM's connection to TO if it succeeded; else notes the failure and returns
// null.
const NetworkProbeResult* Chooser::reached(size_t from, size_t to, const std::string& address) {
    const auto found = results_.find({from, to, address});
    if (found == results_.end()) {
        failures_.add({from, to, address, {}, {}, "it was not tried"});
        return nullptr;
    }
    if (found->second.error.empty()) return &found->second;
    failures_.add(found->second);
    return nullptr;
}

bool Chooser::works(const NetworkCandidate& meeting, NetworkChoice& choice) {
    std::vector<std::string> addresses(hosts_.size());
    std::vector<std::string> interfaces(hosts_.size());
    addresses[0] = meeting.address;
    interfaces[0] = meeting.interface;
    bool all = true;
    for (size_t host = 1; host < hosts_.size(); ++host) {
        const NetworkProbeResult* result = reached(host, 0, meeting.address);
        all = all && result != nullptr;
        if (result == nullptr) continue;
        addresses[host] = result->own_address;
        interfaces[host] = result->interface;
    }
    if (!all) return false;
    for (const auto& [from, to] : pairs(hosts_.size())) {
        if (to != 0 && reached(from, to, addresses[to]) == nullptr) all = false;
    }
    if (!all) return false;
    choice = {true, meeting, std::move(interfaces), {}};
    return true;
}

}  // namespace

std::vector<std::vector<NetworkCandidate>> plan_candidates(const std::vector<NetworkHost>& hosts) {
    const std::set<std::string> shared = shared_addresses(hosts);
    Candidates candidates;
    for (const NetworkHost& host : hosts) candidates.push_back(candidates_of(host, shared));
    return candidates;
}

std::vector<NetworkProbePlan> plan_probes(const Candidates& candidates, ProbeScope scope) {
    std::vector<NetworkProbePlan> probes;
    for (const auto& [from, to] : pairs(candidates.size())) {
        for (const NetworkCandidate& candidate : candidates[to]) {
            probes.push_back({from, to, candidate.address});
            if (scope == ProbeScope::kLikely) break;
        }
    }
    return probes;
}

NetworkChoice choose_network(const std::vector<NetworkHost>& hosts, const Candidates& candidates,
                             const std::vector<NetworkProbeResult>& results) {
    NetworkChoice choice;
    Chooser chooser(hosts, results);
    for (const NetworkCandidate& candidate : candidates.front()) {
        if (chooser.works(candidate, choice)) return choice;
    }
    choice.failures = chooser.failures();
    return choice;
}

}  // namespace dslaunch::launch

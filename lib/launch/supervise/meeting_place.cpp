#include "launch/supervise/meeting_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/process/timing.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The longest wait for a connection. If a neighbour on the network does not exist, the kernel asks
// for it three times, a second apart.
constexpr milliseconds kProbeMax{3'000};
// The additional time for the reply to arrive.
constexpr milliseconds kProbeSlack{2'000};
constexpr size_t kListenAddressesMax = 16;

std::string new_key() {
    std::random_device device;
    return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

}  // namespace

void MeetingPlace::take(size_t host, const Frame& frame) {
    Node& node = nodes_[host];
    switch (frame.kind) {
        case FrameKind::kPrepared:
            node.prepared = decode<PrepareReply>(frame.payload);
            return;
        case FrameKind::kListening:
            node.listening = decode<ListenReply>(frame.payload);
            node.clock = clock_offset(node.asked_clock, wall_clock(),
                                      std::chrono::nanoseconds(node.listening->clock_ns));
            return;
        case FrameKind::kProbed:
            node.probed = decode<ProbeReply>(frame.payload);
            return;
        default:
            fail(ExitCode::kInternal, "received a frame meant for an agent");
    }
}

bool MeetingPlace::all_answered(bool (*has_answered)(const Node&)) const {
    for (size_t i = 0; i < nodes_.size(); ++i) {
        if (!has_answered(nodes_[i]) && !fleet_.nodes()[i].ended) return false;
    }
    return true;
}

void MeetingPlace::find(const std::vector<std::optional<MachineFacts>>& facts) {
    const bool hosts_tell_addresses =
        spec_.transport != TransportKind::kLocal &&
        std::all_of(facts.begin(), facts.end(),
                    [](const auto& known) { return known && !known->addresses.empty(); });
    hosts_tell_addresses ? choose_network_of(facts) : let_node_0_choose();
}

void MeetingPlace::let_node_0_choose() {
    PrepareRequest request;
    request.address = spec_.master_address;
    request.port = spec_.master_port;
    request.loopback_only = spec_.nodes.size() == 1 || spec_.transport == TransportKind::kLocal;
    fleet_.send(0, FrameKind::kPrepare, encode(request));
    const std::optional<PrepareReply>& reply = nodes_.front().prepared;
    fleet_.pump([&] { return reply || fleet_.nodes().front().ended; },
                steady_clock::now() + spec_.connect_max);
    if (fleet_.interrupted()) return;
    if (!reply && fleet_.nodes().front().error.empty()) fleet_.lose(0, "no answer");
    fail_if_no_place();
    where_ = *reply;
}

void MeetingPlace::fail_if_no_place() const {
    // If node 0 reported a set-up error, it was reached, and its set-up is at fault.
    const bool lacks = fleet_.nodes().front().problem_code == ExitCode::kSetup;
    fleet_.fail_if_bad("cannot open the rendezvous port of the ranks on",
                       lacks ? ExitCode::kSetup : ExitCode::kHosts);
}

std::vector<NetworkHost> MeetingPlace::hosts_with(
    const std::vector<std::optional<MachineFacts>>& facts) const {
    std::vector<NetworkHost> hosts;
    for (size_t i = 0; i < nodes_.size(); ++i) {
        const Fleet::Node& node = fleet_.nodes()[i];
        hosts.push_back({node.address.name, facts[i]->machine_id, node.hello.arrival_address,
                         facts[i]->addresses});
    }
    return hosts;
}

void MeetingPlace::ask_to_listen(const Candidates& candidates, const std::string& key) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
        ListenRequest request;
        request.node = static_cast<int64_t>(i);
        request.key = key;
        if (i == 0) request.port = spec_.master_port;
        for (const NetworkCandidate& candidate : candidates[i]) {
            if (request.addresses.size() < kListenAddressesMax) {
                request.addresses.push_back(candidate.address);
            }
        }
        nodes_[i].asked_clock = wall_clock();
        fleet_.send(i, FrameKind::kListen, encode(request));
    }
    fleet_.pump([&] { return all_answered([](const Node& n) { return n.listening.has_value(); }); },
                steady_clock::now() + spec_.connect_max);
    if (fleet_.interrupted()) return;
    for (size_t i = 0; i < nodes_.size(); ++i) {
        if (!nodes_[i].listening)
            fleet_.lose(i, "its agent did not answer the request to listen on a port");
        const std::string clock = nodes_[i].listening ? describe_clock(nodes_[i].clock) : "";
        if (!clock.empty())
            output_.note(fmt::format("dslaunch: {}: {}", spec_.nodes[i].name, clock));
    }
    fail_if_no_place();
}

std::vector<NetworkProbeResult> MeetingPlace::probe(const std::vector<NetworkProbePlan>& plan,
                                                    const std::string& key) {
    std::vector<ProbeRequest> requests(nodes_.size());
    std::vector<NetworkProbeResult> results;
    for (const NetworkProbePlan& wanted : plan) {
        const auto& places = nodes_[wanted.to].listening->places;
        const auto place = std::find_if(places.begin(), places.end(), [&](const auto& entry) {
            return entry.address == wanted.address || entry.numeric == wanted.address;
        });
        if (place != places.end() && place->error.empty()) {
            requests[wanted.from].targets.push_back(
                {static_cast<int64_t>(wanted.to), place->numeric, place->port});
        } else {
            const std::string error = place == places.end() ? "nobody listens there" : place->error;
            results.push_back({wanted.from, wanted.to, wanted.address, {}, {}, error});
        }
    }
    for (bool more = true; more && !fleet_.interrupted();) {
        more = probe_portion(requests, key);
        for (size_t i = 0; i < nodes_.size() && !fleet_.interrupted(); ++i) {
            for (const ProbeReply::Result& result : nodes_[i].probed->results) {
                if (result.node < 0 || result.node >= static_cast<int64_t>(nodes_.size())) continue;
                results.push_back({i, static_cast<size_t>(result.node), result.address,
                                   result.own_address, result.interface, result.error});
            }
        }
    }
    return results;
}

// Sends each host the next kProbeTargetsMax targets of its request in REQUESTS and waits for the
// answers. Returns true if any targets are left.
bool MeetingPlace::probe_portion(std::vector<ProbeRequest>& requests, const std::string& key) {
    bool more = false;
    for (size_t i = 0; i < nodes_.size(); ++i) {
        std::vector<ProbeRequest::Target>& left = requests[i].targets;
        const auto end =
            left.begin() + static_cast<std::ptrdiff_t>(std::min(left.size(), kProbeTargetsMax));
        const ProbeRequest portion{{left.begin(), end}, kProbeMax.count(), key};
        left.erase(left.begin(), end);
        more = more || !left.empty();
        nodes_[i].probed.reset();
        if (portion.targets.empty()) {
            nodes_[i].probed = ProbeReply{};
        } else {
            fleet_.send(i, FrameKind::kProbe, encode(portion));
        }
    }
    fleet_.pump(
        [&] { return all_answered([](const Node& n) { return n.probed.has_value(); }); },
        steady_clock::now() + std::max<milliseconds>(spec_.connect_max, kProbeMax + kProbeSlack));
    if (fleet_.interrupted()) return false;
    for (size_t i = 0; i < nodes_.size(); ++i) {
        if (!nodes_[i].probed)
            fleet_.lose(i, "its agent did not answer the request to connect to the other hosts");
    }
    fleet_.fail_if_bad("cannot choose a network, because of an error on");
    return more;
}

void MeetingPlace::meet_at(const NetworkChoice& choice) {
    const auto& places = nodes_[0].listening->places;
    const auto place = std::find_if(places.begin(), places.end(), [&](const auto& entry) {
        return entry.numeric == choice.meeting.address;
    });
    where_ = {place->address, place->port};
    for (size_t i = 0; i < nodes_.size(); ++i) {
        fleet_.send(i, FrameKind::kChooseNetwork,
                    encode(ChooseRequest{i == 0 ? place->address : ""}));
        const std::string& interface = choice.interfaces[i];
        if (nodes_.size() == 1 || interface.empty()) continue;
        // With `=`, NCCL does not use other interfaces whose names begin in the same way.
        nodes_[i].network = {{"NCCL_SOCKET_IFNAME", "=" + interface},
                             {"GLOO_SOCKET_IFNAME", interface}};
    }
    if (nodes_.size() == 1) return;
    log_info("launch",
             "the ranks meet at {} port {}, on {} of {} (reason: {}); the {} hosts can reach each "
             "other there",
             printable(place->address), place->port, printable(choice.meeting.interface),
             spec_.nodes.front().name, choice.meeting.reason, nodes_.size());
}

// Blames the hosts that cannot reach node 0 at any of its addresses; if they are the majority,
// blames node 0 instead.
void MeetingPlace::blame_cut_off(const std::vector<NetworkProbeResult>& results) {
    std::vector<bool> reaches(nodes_.size(), false);
    reaches[0] = true;
    for (const NetworkProbeResult& result : results) {
        if (result.to == 0 && result.error.empty()) reaches[result.from] = true;
    }
    const auto cut_off = std::count(reaches.begin(), reaches.end(), false);
    const bool node_0_is = cut_off * 2 > std::ssize(reaches);
    for (size_t i = 0; i < reaches.size(); ++i) {
        if (node_0_is ? i == 0 : !reaches[i])
            fleet_.blame(i, "no network connects this host to the others");
    }
}

// Replaces the address and interface in node 0's candidates by the bound address and interface.
void MeetingPlace::take_bound_places(std::vector<NetworkCandidate>& candidates) const {
    for (NetworkCandidate& candidate : candidates) {
        for (const ListenReply::Place& place : nodes_[0].listening->places) {
            if (place.address != candidate.address || !place.error.empty()) continue;
            candidate.address = place.numeric;
            candidate.interface = place.interface;
        }
    }
}

void MeetingPlace::choose_network_of(const std::vector<std::optional<MachineFacts>>& facts) {
    const std::vector<NetworkHost> hosts = hosts_with(facts);
    Candidates candidates = plan_candidates(hosts);
    const bool given = !spec_.master_address.empty();
    if (nodes_.size() == 1) candidates[0] = {{"lo", "127.0.0.1", ""}};
    if (given) candidates[0] = {{"", spec_.master_address, "--master_addr says so"}};
    for (size_t i = 0; i < nodes_.size(); ++i) {
        if (!candidates[i].empty()) continue;
        fleet_.blame(i,
                     "other hosts can reach none of its addresses, or each address belongs to "
                     "several hosts");
    }
    fleet_.fail_if_bad(
        "the hosts share no network; an address that other hosts can reach is missing on",
        ExitCode::kSetup);
    const std::string key = new_key();
    ask_to_listen(candidates, key);
    if (fleet_.interrupted()) return;
    const auto& places = nodes_[0].listening->places;
    if (given && !places.empty() && !places.front().error.empty()) {
        fleet_.blame(0, printable(places.front().error));
        fleet_.fail_if_bad("cannot open the rendezvous port of the ranks on", ExitCode::kSetup);
    }
    take_bound_places(candidates[0]);
    NetworkChoice choice;
    std::vector<NetworkProbeResult> results;
    for (const ProbeScope scope : {ProbeScope::kLikely, ProbeScope::kEverything}) {
        const auto plan = plan_probes(candidates, scope);
        if (!plan.empty()) results = probe(plan, key);
        if (fleet_.interrupted()) return;
        choice = choose_network(hosts, candidates, results);
        if (choice.found) return meet_at(choice);
    }
    blame_cut_off(results);
    fail(ExitCode::kHosts,
         "no network connects the hosts{}; open the firewall between them, or give an address of "
         "{} with --master_addr:\n  {}",
         given ? " at the address of --master_addr" : "", spec_.nodes.front().name,
         join(choice.failures, "\n  "));
}

}  // namespace dslaunch::launch

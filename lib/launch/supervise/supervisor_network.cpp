// The part of the supervisor that finds the network on which the hosts of a job meet, and says what
// their machines lack.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/network/network_messages.h"
#include "launch/process/spawn.h"
#include "launch/supervise/supervisor.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A connection that takes longer leads nowhere: the kernel asks three times a second apart for a
// neighbour that is not there.
constexpr milliseconds kProbeMax{3'000};
// For a reply to come back after that.
constexpr milliseconds kProbeSlack{2'000};
constexpr size_t kListenAddressesMax = 16;

std::string new_key() {
    std::random_device device;
    return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

}  // namespace

void Supervisor::handle_network_frame(Node& node, const Frame& frame) {
    switch (frame.kind) {
        case FrameKind::kMachineFacts:
            node.facts = decode_machine_facts(frame.payload);
            return;
        case FrameKind::kListening:
            node.listening = decode_listen_reply(frame.payload);
            node.clock = clock_offset(node.asked_clock, wall_clock(),
                                      std::chrono::nanoseconds(node.listening->clock_ns));
            return;
        case FrameKind::kProbed:
            node.probed = decode_probe_reply(frame.payload);
            return;
        default:
            fail(ExitCode::kInternal, "a frame meant for an agent");
    }
}

void Supervisor::check_machine_facts() {
    const bool told = all_nodes([](const Node& node) { return node.facts.has_value(); });
    if (end_now_ || !told || !spec_.check_hosts) return;
    if (spec_.target_kind != TargetKind::kTorchScript || spec_.required_files.empty()) return;
    std::vector<MachineFacts> machines;
    for (const Node& node : nodes_) machines.push_back(*node.facts);
    const bool cuda = spec_.device != DeviceRequest::kCpu && !drop_devices_;
    const std::vector<std::string> problems =
        check_machines(machines, needs_of_worker(spec_.required_files.front(), cuda));
    for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i].error = problems[i];
    fail_if_bad_nodes("dsworker cannot run, or not together with the others, on");
}

void Supervisor::tell_binding(const WorkerStarted& started) const {
    const std::string* places = find_variable(started.environment, kBindingVariable);
    const std::string* threads = find_variable(started.environment, "OMP_NUM_THREADS");
    if (spec_.binding.mode == BindMode::kNone || places == nullptr || threads == nullptr) return;
    log_info("launch",
             "binding {}: rank 0 has processors {} of {} and OMP_NUM_THREADS={}; DSL_BINDING of "
             "each rank says where it runs",
             bind_mode_name(spec_.binding.mode), printable(*places), spec_.nodes.front().name,
             printable(*threads));
}

bool Supervisor::hosts_tell_addresses() const {
    return spec_.transport != TransportKind::kLocal &&
           all_nodes([](const Node& node) { return node.facts && !node.facts->addresses.empty(); });
}

std::vector<NetworkHost> Supervisor::network_hosts() const {
    std::vector<NetworkHost> hosts;
    for (size_t i = 0; i < nodes_.size(); ++i) {
        hosts.push_back({spec_.nodes[i].name, nodes_[i].facts->machine_id,
                         nodes_[i].hello.arrival_address, nodes_[i].facts->addresses});
    }
    return hosts;
}

void Supervisor::ask_to_listen(const std::vector<std::vector<NetworkCandidate>>& candidates,
                               const std::string& key) {
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
        send(i, FrameKind::kListen, encode(request));
    }
    const auto answered = [](const Node& node) { return node.listening || node.ended; };
    pump([&] { return end_now_ || all_nodes(answered); }, steady_clock::now() + spec_.connect_max);
    if (end_now_) return;
    for (size_t i = 0; i < nodes_.size(); ++i) {
        if (!answered(nodes_[i])) lose_node(i, "no answer to the request to listen");
        const std::string clock = nodes_[i].listening ? describe_clock(nodes_[i].clock) : "";
        if (!clock.empty())
            output_.note(fmt::format("dslaunch: {}: {}", spec_.nodes[i].name, clock));
    }
    // The host was reached: what it lacks is a matter of its set-up.
    const auto setup = static_cast<uint32_t>(ExitCode::kSetup);
    fail_if_bad_nodes("no place for the ranks to meet on",
                      nodes_[0].problem_code == setup ? ExitCode::kSetup : ExitCode::kHosts);
}

std::vector<NetworkProbeResult> Supervisor::probe(const std::vector<NetworkProbePlan>& plan,
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
    for (bool more = true; more && !end_now_;) {
        more = probe_portion(requests, key);
        for (size_t i = 0; i < nodes_.size() && !end_now_; ++i) {
            for (const ProbeReply::Result& result : nodes_[i].probed->results) {
                if (result.node < 0 || result.node >= static_cast<int64_t>(nodes_.size())) continue;
                results.push_back({i, static_cast<size_t>(result.node), result.address,
                                   result.own_address, result.interface, result.error});
            }
        }
    }
    return results;
}

// Sends each host the first kProbeTargetsMax of what REQUESTS have left for it and waits for the
// answers. Whether anything is left.
bool Supervisor::probe_portion(std::vector<ProbeRequest>& requests, const std::string& key) {
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
            send(i, FrameKind::kProbe, encode(portion));
        }
    }
    pump([&] { return end_now_ || all_nodes([](const Node& n) { return n.probed || n.ended; }); },
         steady_clock::now() + std::max<milliseconds>(spec_.connect_max, kProbeMax + kProbeSlack));
    if (end_now_) return false;
    for (size_t i = 0; i < nodes_.size(); ++i) {
        if (!nodes_[i].probed) lose_node(i, "no answer to the request to reach the other hosts");
    }
    fail_if_bad_nodes("the network cannot be chosen:");
    return more;
}

void Supervisor::meet_at(const NetworkChoice& choice) {
    const auto& places = nodes_[0].listening->places;
    const auto place = std::find_if(places.begin(), places.end(), [&](const auto& entry) {
        return entry.numeric == choice.meeting.address;
    });
    rendezvous_ = {place->address, place->port};
    for (size_t i = 0; i < nodes_.size(); ++i) {
        send(i, FrameKind::kChooseNetwork, encode(ChooseRequest{i == 0 ? place->address : ""}));
        const std::string& interface = choice.interfaces[i];
        if (nodes_.size() == 1 || interface.empty()) continue;
        // `=`: this name and no other that begins with it.
        nodes_[i].network = {{"NCCL_SOCKET_IFNAME", "=" + interface},
                             {"GLOO_SOCKET_IFNAME", interface}};
    }
    if (nodes_.size() == 1) return;
    log_info("launch",
             "the ranks meet at {} port {}, {} of {}: {}; {} hosts reach each other there",
             printable(place->address), place->port, printable(choice.meeting.interface),
             spec_.nodes.front().name, choice.meeting.reason, nodes_.size());
}

// Hosts that do not reach node 0 by any way are the bad ones; where they are most, node 0 is.
void Supervisor::name_cut_off(const std::vector<NetworkProbeResult>& results) {
    std::vector<bool> reaches(nodes_.size(), false);
    reaches[0] = true;
    for (const NetworkProbeResult& result : results) {
        if (result.to == 0 && result.error.empty()) reaches[result.from] = true;
    }
    const auto cut_off = std::count(reaches.begin(), reaches.end(), false);
    const bool node_0_is = cut_off * 2 > std::ssize(reaches);
    for (size_t i = 0; i < reaches.size(); ++i) {
        if (node_0_is ? i == 0 : !reaches[i]) bad_hosts_.push_back(spec_.nodes[i].name);
    }
}

void Supervisor::choose_meeting_place() {
    const std::vector<NetworkHost> hosts = network_hosts();
    auto candidates = plan_candidates(hosts);
    const bool given = !spec_.master_address.empty();
    if (nodes_.size() == 1) candidates[0] = {{"lo", "127.0.0.1", ""}};
    if (given) candidates[0] = {{"", spec_.master_address, "--master_addr says so"}};
    for (size_t i = 0; i < nodes_.size(); ++i) {
        if (candidates[i].empty()) {
            nodes_[i].error =
                "none of its addresses can be reached by others, or all belong to "
                "several hosts";
        }
    }
    fail_if_bad_nodes("there is no network between the hosts; give one to", ExitCode::kSetup);
    const std::string key = new_key();
    ask_to_listen(candidates, key);
    if (end_now_) return;
    const auto& places = nodes_[0].listening->places;
    if (given && !places.empty() && !places.front().error.empty()) {
        nodes_[0].error = printable(places.front().error);
        fail_if_bad_nodes("no place for the ranks to meet on", ExitCode::kSetup);
    }
    for (NetworkCandidate& candidate : candidates[0]) {
        for (const ListenReply::Place& place : nodes_[0].listening->places) {
            if (place.address != candidate.address || !place.error.empty()) continue;
            candidate.address = place.numeric;
            candidate.interface = place.interface;
        }
    }
    NetworkChoice choice;
    std::vector<NetworkProbeResult> results;
    for (const ProbeScope scope : {ProbeScope::kLikely, ProbeScope::kEverything}) {
        const auto plan = plan_probes(candidates, scope);
        if (!plan.empty()) results = probe(plan, key);
        if (end_now_) return;
        choice = choose_network(hosts, candidates, results);
        if (choice.found) return meet_at(choice);
    }
    name_cut_off(results);
    fail(ExitCode::kHosts,
         "no network connects the hosts{}; open the firewall between them, or name an address of "
         "{} with --master_addr:\n  {}",
         given ? " by way of --master_addr" : "", spec_.nodes.front().name,
         join(choice.failures, "\n  "));
}

}  // namespace dslaunch::launch

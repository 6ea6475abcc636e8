// The part of an attempt before its ranks start: agents on all hosts, their checks, and a place
// where the ranks meet.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/files/file_facts.h"
#include "launch/plan/launch_plan.h"
#include "launch/process/timing.h"
#include "launch/supervise/supervisor.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The longest wait for a connection: the kernel asks three times a second apart for a neighbour
// that is not there.
constexpr milliseconds kProbeMax{3'000};
// The time for a reply to come back after that.
constexpr milliseconds kProbeSlack{2'000};
constexpr size_t kListenAddressesMax = 16;

std::string new_key() {
    std::random_device device;
    return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

constexpr const char* kHostAdvice =
    "`dslaunch hosts trust` sets up keys and known_hosts, --push sends what is missing, --exclude "
    "leaves hosts out; a training goes on with those that answer by --nnodes MIN:MAX";
constexpr const char* kNameAdvice =
    "Look at the spelling in the hostfile, at /etc/hosts and ~/.ssh/config; --exclude leaves hosts "
    "out; a training goes on with those that answer by --nnodes MIN:MAX";
// The agents are heard this often while large files are read here.
constexpr milliseconds kLookWhileReading{100};

// Returns the differences of a host's files from OWN, in words; empty: they are equal.
std::string describe_difference(const std::vector<FileFacts>& own,
                                const std::vector<FileFacts>& theirs) {
    std::string text;
    if (theirs.size() != own.size()) return text;
    for (size_t i = 0; i < own.size(); ++i) {
        if (theirs[i] == own[i]) continue;
        text += text.empty() ? "" : "; ";
        text += printable(own[i].path);
        if (!theirs[i].error.empty()) {
            text += ": " + printable(theirs[i].error);
        } else if (theirs[i].bytes != own[i].bytes) {
            text += fmt::format(": {} bytes there, {} here", theirs[i].bytes, own[i].bytes);
        } else {
            text += ": same size, other content";
        }
    }
    return text;
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
            fail(ExitCode::kInternal, "a frame meant for an agent");
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
    // The host was reached: what it lacks is a matter of its set-up.
    const bool lacks = fleet_.nodes().front().problem_code == ExitCode::kSetup;
    fleet_.fail_if_bad("no place for the ranks to meet on",
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
        if (!nodes_[i].listening) fleet_.lose(i, "no answer to the request to listen");
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

// Sends each host the first kProbeTargetsMax of what REQUESTS have left for it and waits for the
// answers. The result is whether anything is left.
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
        if (!nodes_[i].probed) fleet_.lose(i, "no answer to the request to reach the other hosts");
    }
    fleet_.fail_if_bad("the network cannot be chosen:");
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

// Blames the hosts that do not reach node 0 by any way; where they are most, blames node 0.
void MeetingPlace::blame_cut_off(const std::vector<NetworkProbeResult>& results) {
    std::vector<bool> reaches(nodes_.size(), false);
    reaches[0] = true;
    for (const NetworkProbeResult& result : results) {
        if (result.to == 0 && result.error.empty()) reaches[result.from] = true;
    }
    const auto cut_off = std::count(reaches.begin(), reaches.end(), false);
    const bool node_0_is = cut_off * 2 > std::ssize(reaches);
    for (size_t i = 0; i < reaches.size(); ++i) {
        if (node_0_is ? i == 0 : !reaches[i]) fleet_.blame(i, "no network connects it");
    }
}

// Gives the candidates of node 0 the address and interface that its agent bound for them.
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
                     "none of its addresses can be reached by others, or all belong to several "
                     "hosts");
    }
    fleet_.fail_if_bad("there is no network between the hosts; give one to", ExitCode::kSetup);
    const std::string key = new_key();
    ask_to_listen(candidates, key);
    if (fleet_.interrupted()) return;
    const auto& places = nodes_[0].listening->places;
    if (given && !places.empty() && !places.front().error.empty()) {
        fleet_.blame(0, printable(places.front().error));
        fleet_.fail_if_bad("no place for the ranks to meet on", ExitCode::kSetup);
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
         "no network connects the hosts{}; open the firewall between them, or name an address of "
         "{} with --master_addr:\n  {}",
         given ? " by way of --master_addr" : "", spec_.nodes.front().name,
         join(choice.failures, "\n  "));
}

std::string Preparation::machine_of(size_t host) const {
    const std::optional<MachineFacts>& facts = nodes_[host].facts;
    return facts && !facts->machine_id.empty() ? facts->machine_id + " " + facts->process_namespace
                                               : fleet_.nodes()[host].hello.host_name;
}

void Preparation::take(size_t host, const Frame& frame) {
    switch (frame.kind) {
        case FrameKind::kChecked:
            nodes_[host].files = decode<CheckReply>(frame.payload).files;
            return;
        case FrameKind::kMachineFacts:
            nodes_[host].facts = decode<MachineFacts>(frame.payload);
            return;
        default:
            return meeting_.take(host, frame);
    }
}

void Preparation::run() {
    connect();
    if (fleet_.interrupted()) return;
    choose_devices();
    check_machine_facts();
    check_files();
    if (!fleet_.interrupted()) meeting_.find(facts());
}

void Preparation::connect() {
    fleet_.connect(spec_.connect_max, !is_local());
    if (fleet_.interrupted()) return;
    compare_programs();  // bad hosts of every kind in one message
    const bool by_ssh =
        spec_.transport == TransportKind::kSsh || spec_.transport == TransportKind::kOpenSsh;
    const bool names_alone = std::ranges::all_of(fleet_.nodes(), [](const Fleet::Node& node) {
        return node.error.empty() || node.error.find(" does not resolve: ") != std::string::npos;
    });
    const char* const advice = names_alone ? kNameAdvice : kHostAdvice;
    fleet_.fail_if_bad("cannot start an agent on", ExitCode::kHosts, by_ssh ? advice : "");
    for (size_t i = 0; i < nodes_.size(); ++i) {
        output_.add_node(fleet_.nodes()[i].hello, spec_.nodes[i].name,
                         nodes_[i].facts ? &*nodes_[i].facts : nullptr);
    }
}

void Preparation::compare_programs() {
    if (is_local()) return;
    const std::string hash = own_binary_hash();
    for (size_t i = 0; i < nodes_.size(); ++i) {
        const Fleet::Node& node = fleet_.nodes()[i];
        if (!node.greeted || node.ended || node.hello.binary_hash == hash) continue;
        fleet_.blame(i, fmt::format("its dslaunch (version {}) differs from this one ({}): copy "
                                    "this one to the same path there",
                                    printable(node.hello.version), DSL_VERSION));
    }
}

void Preparation::choose_devices() {
    // A local job was planned with this machine's own GPUs.
    const bool asked = spec_.device == DeviceRequest::kCuda;
    const bool open = spec_.device == DeviceRequest::kAuto;
    if (is_local() || (!asked && !open)) return;
    if (open && fleet_.all([](const Fleet::Node& node) { return node.hello.gpus == 0; })) {
        drop_devices_ = true;
        if (!spec_.log.quiet) output_.note("dslaunch: no node has a GPU; the ranks run on CPUs");
        return;
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
        const int64_t gpus = fleet_.nodes()[i].hello.gpus;
        const WorkerEnvironment& first = spec_.nodes[i].workers.front().environment;
        int64_t missing = 0;
        for (const std::string& device : visible_device_list(first.devices, 0)) {
            const auto number = parse_int(device);
            if (number && *number >= gpus) ++missing;
        }
        const auto wanted = static_cast<int64_t>(spec_.nodes[i].workers.size());
        if (missing == 0 && gpus >= wanted) continue;
        fleet_.blame(i, fmt::format("has {} for {} on {}", counted(gpus, "GPU"),
                                    counted(wanted, "worker"), printable(first.devices)));
    }
    fleet_.fail_if_bad("GPUs are missing; ask for fewer, leave hosts out, or give --device cpu:");
}

std::vector<std::optional<MachineFacts>> Preparation::facts() const {
    std::vector<std::optional<MachineFacts>> facts;
    for (const Node& node : nodes_) facts.push_back(node.facts);
    return facts;
}

void Preparation::check_machine_facts() {
    if (!spec_.check_hosts || spec_.required_files.empty() ||
        spec_.target_kind != TargetKind::kModel) {
        return;
    }
    std::vector<MachineFacts> machines;
    for (const Node& node : nodes_) {
        if (!node.facts) return;
        machines.push_back(*node.facts);
    }
    const bool cuda = spec_.device != DeviceRequest::kCpu && !drop_devices_;
    const std::vector<std::string> problems =
        check_machines(machines, needs_of_worker(spec_.required_files.front(), cuda));
    for (size_t i = 0; i < nodes_.size(); ++i) fleet_.blame(i, problems[i]);
    fleet_.fail_if_bad("dsworker cannot run, or not together with the others, on");
}

// Returns our own files' facts; hears agents meanwhile. Throws Error{kInput, kInterrupted}.
std::vector<FileFacts> Preparation::look_at_own_files() {
    HashCache cache(HashCache::default_path());
    std::vector<FileFacts> own;
    auto last = steady_clock::now();
    const auto keep_in_touch = [&] {
        if (steady_clock::now() - last < kLookWhileReading) return;
        last = steady_clock::now();
        fleet_.pump([] { return true; }, last);
        if (fleet_.interrupted()) fail(ExitCode::kInterrupted, "interrupted");
    };
    for (const std::string& path : spec_.required_files) {
        own.push_back(look_at_file(path, spec_.verify_all_bytes, keep_in_touch, &cache));
        if (!own.back().error.empty()) {
            fail(ExitCode::kInput, "{}: {} (on this machine)", path, own.back().error);
        }
    }
    cache.save();
    return own;
}

void Preparation::check_files() {
    const std::string& interpreter = spec_.interpreter;
    if (is_local() || (spec_.required_files.empty() && interpreter.empty()) || !spec_.check_hosts) {
        return;
    }
    CheckRequest request{spec_.required_files, spec_.verify_all_bytes};
    if (!interpreter.empty()) request.paths.push_back(interpreter);
    fleet_.send_all(FrameKind::kCheck, encode(request));
    const std::vector<FileFacts> own = look_at_own_files();
    const auto all_answered = [&] {
        for (size_t i = 0; i < nodes_.size(); ++i) {
            if (!nodes_[i].files && !fleet_.nodes()[i].ended) return false;
        }
        return true;
    };
    fleet_.pump(all_answered, kNever);
    for (size_t i = 0; i < nodes_.size(); ++i) {
        if (!nodes_[i].files) continue;
        std::vector<FileFacts>& theirs = *nodes_[i].files;
        if (!interpreter.empty() && !theirs.empty()) {
            // It need not be the same file: an environment leads to each host's own Python.
            const std::string error = theirs.back().error;
            theirs.pop_back();
            if (!error.empty()) {
                fleet_.blame(i, fmt::format("no Python at {}: {}; the job's Python is that of the "
                                            "launcher (VIRTUAL_ENV, CONDA_PREFIX, PATH): make it "
                                            "there too, or give --no_python and a program of the "
                                            "host's own",
                                            printable(interpreter), printable(error)));
            }
        }
        fleet_.blame(i, describe_difference(own, theirs));
    }
    fleet_.fail_if_bad("files are missing or differ; copy them, or give --push, on");
}

StartRequest Preparation::start_request(size_t host, const AttemptNumber& number) const {
    StartRequest request;
    request.target_kind = spec_.target_kind;
    request.inherit_all = spec_.environment.inherit_all;
    request.working_directory = spec_.working_directory;
    request.defaults = meeting_.network_of(host);
    request.binding = spec_.binding;
    request.machine_ranks = 0;
    for (size_t other = 0; other < spec_.nodes.size(); ++other)
        if (machine_of(other) == machine_of(host))
            request.machine_ranks += std::ssize(spec_.nodes[other].workers);
    for (const PlannedWorker& planned : spec_.nodes[host].workers) {
        StartRequest::Worker worker;
        worker.is_rank = true;
        WorkerEnvironment& place = worker.place = planned.environment;
        place.master_address = meeting_.where().address;
        place.master_port = static_cast<int>(meeting_.where().port);
        place.attempt = number.starts;
        place.restart_count = number.restarts;
        place.max_restarts = spec_.max_restarts;
        if (drop_devices_) place.devices.clear();
        worker.command = planned.command;
        worker.environment = spec_.environment.set;
        worker.expanded = spec_.environment.expanded;
        if (!is_local() && spec_.target_kind == TargetKind::kModel)
            worker.environment.emplace_back(kHostVariable, spec_.nodes[host].name);
        request.workers.push_back(std::move(worker));
    }
    return request;
}

}  // namespace dslaunch::launch

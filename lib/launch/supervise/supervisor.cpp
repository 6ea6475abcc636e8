#include "launch/supervise/supervisor.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/files/file_facts.h"
#include "launch/plan/launch_plan.h"
#include "launch/process/timing.h"
#include "launch/protocol/control.h"
#include "launch/supervise/failure_report.h"
#include "launch/supervise/restart.h"
#include "launch/transport/host_addresses.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kNever = steady_clock::time_point::max();
// A program that complains of a taken address later than this speaks of another one.
constexpr std::chrono::seconds kPortClashMax{60};

}  // namespace

Supervisor::Supervisor(const JobSpec& spec, Transport& transport, JobOutput& output, int signal_fd)
    : spec_(spec),
      transport_(transport),
      output_(output),
      signal_fd_(signal_fd),
      nodes_(spec.nodes.size()),
      ranks_(static_cast<size_t>(spec.world_size)),
      stragglers_(spec.log.straggler_interval_steps) {
    for (const PlannedNode& node : spec.nodes) {
        for (const PlannedWorker& worker : node.workers) {
            RankRecord& rank = record(worker.environment.rank);
            rank.rank = worker.environment.rank;
            rank.host = node.name;
        }
    }
}

RankRecord& Supervisor::record(int64_t rank) {
    if (rank < 0 || rank >= static_cast<int64_t>(ranks_.size())) {
        fail(ExitCode::kInternal, "an agent speaks of rank {} of {}", rank, ranks_.size());
    }
    return ranks_[rank];
}

void Supervisor::send(size_t node, FrameKind kind, std::string payload) {
    if (!nodes_[node].ended) transport_.send(node, encode(Frame{kind, std::move(payload)}));
}

void Supervisor::send_all(FrameKind kind, const std::string& payload) {
    for (size_t i = 0; i < nodes_.size(); ++i) send(i, kind, payload);
}

bool Supervisor::all_nodes(const std::function<bool(const Node&)>& predicate) const {
    return std::all_of(nodes_.begin(), nodes_.end(), predicate);
}

bool Supervisor::all_ranks_ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const RankRecord& r) { return r.ended; });
}

AttemptResult Supervisor::run(int restart_count) {
    try {
        connect();
        choose_devices();
        check_machine_facts();
        check_files();
        prepare();
        if (!end_now_) {
            start_workers(restart_count);
            watch_workers();
        }
    } catch (...) {
        // After a failure the hosts that are missing are waited for, and those that came as well.
        stop_all(restart_count > 0 && !bad_hosts_.empty() && !interrupted());
        throw;
    }
    stop_all(restart_may_follow(restart_count));
    AttemptResult result = conclude();
    result.left_processes = !leftovers_.empty();
    if (result.left_processes) result.may_restart = false;
    result.report += leftovers_;
    return result;
}

void Supervisor::connect() {
    transport_.start(addresses_of(spec_.nodes));
    const auto now = steady_clock::now();
    next_ping_ = now + kPingInterval;
    for (Node& node : nodes_) node.last_byte = now;
    Hello hello;
    hello.want_binary_hash = spec_.transport != TransportKind::kLocal;
    for (size_t i = 0; i < nodes_.size(); ++i) {
        hello.node_name = spec_.nodes[i].name;
        send(i, FrameKind::kHello, encode(hello));
    }
    const auto decided = [](const Node& node) { return node.greeted || node.ended; };
    if (!pump([&] { return end_now_ || all_nodes(decided); }, now + spec_.connect_max)) {
        for (size_t i = 0; i < nodes_.size(); ++i) {
            if (decided(nodes_[i])) continue;
            lose_node(i, fmt::format("no agent said hello within {} s",
                                     std::chrono::duration<double>(spec_.connect_max).count()));
        }
    }
    compare_versions();  // bad hosts of every kind in one message
    fail_if_bad_nodes("cannot start an agent on");
    if (end_now_) return;
    for (size_t i = 0; i < nodes_.size(); ++i) {
        output_.add_node(nodes_[i].hello, spec_.nodes[i].name,
                         nodes_[i].facts ? &*nodes_[i].facts : nullptr);
    }
}

void Supervisor::compare_versions() {
    if (end_now_ || spec_.transport == TransportKind::kLocal) return;
    const std::string hash = own_binary_hash();
    for (Node& node : nodes_) {
        if (!node.greeted || node.ended) continue;
        if (node.hello.protocol_version != kAgentProtocolVersion) {
            node.error = fmt::format("its dslaunch {} speaks protocol {}, this one {} speaks {}",
                                     printable(node.hello.version), node.hello.protocol_version,
                                     DSL_VERSION, kAgentProtocolVersion);
        } else if (node.hello.binary_hash != hash) {
            node.error = fmt::format(
                "its dslaunch (version {}) differs from this one ({}): copy this one to the same "
                "path there",
                printable(node.hello.version), DSL_VERSION);
        }
    }
}

void Supervisor::choose_devices() {
    // A local job was planned with this machine's own GPUs.
    const bool asked = spec_.device == DeviceRequest::kCuda;
    const bool open = spec_.device == DeviceRequest::kAuto;
    if (end_now_ || spec_.transport == TransportKind::kLocal || (!asked && !open)) return;
    if (open && all_nodes([](const Node& node) { return node.hello.gpus == 0; })) {
        drop_devices_ = true;
        if (!spec_.log.quiet) output_.note("dslaunch: no node has a GPU; the ranks run on CPUs");
        return;
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
        const WorkerEnvironment& first = spec_.nodes[i].workers.front().environment;
        int64_t missing = 0;
        for (const std::string& device : visible_device_list(first.devices, 0)) {
            const auto number = parse_int(device);
            if (number && *number >= nodes_[i].hello.gpus) ++missing;
        }
        const auto wanted = static_cast<int64_t>(spec_.nodes[i].workers.size());
        if (missing == 0 && nodes_[i].hello.gpus >= wanted) continue;
        nodes_[i].error = fmt::format("has {} GPU(s) for {} worker(s) on {}", nodes_[i].hello.gpus,
                                      wanted, printable(first.devices));
    }
    fail_if_bad_nodes("GPUs are missing; ask for fewer, leave hosts out, or give --device cpu:");
}

void Supervisor::check_files() {
    if (end_now_ || spec_.transport == TransportKind::kLocal || spec_.required_files.empty() ||
        !spec_.check_hosts)
        return;
    send_all(FrameKind::kCheck, encode(CheckRequest{spec_.required_files, spec_.verify_all_bytes}));
    HashCache cache(HashCache::default_path());
    std::vector<FileFacts> own;
    auto last = steady_clock::now();
    for (const std::string& path : spec_.required_files) {
        own.push_back(look_at_file(
            path, spec_.verify_all_bytes,
            [&] {
                if (steady_clock::now() - last < milliseconds(100)) return;
                last = steady_clock::now();
                pump([] { return true; }, last);
                if (end_now_) fail(ExitCode::kInterrupted, "interrupted");
            },
            &cache));
        if (!own.back().error.empty()) {
            fail(ExitCode::kInput, "{}: {} (on this machine)", path, own.back().error);
        }
    }
    cache.save();
    pump([&] { return end_now_ || all_nodes([](const Node& n) { return n.checked || n.ended; }); },
         kNever);
    if (end_now_) return;
    for (Node& node : nodes_) {
        for (size_t i = 0; node.checked && i < own.size(); ++i) {
            if (node.checked->files.size() != own.size()) break;
            const FileFacts& theirs = node.checked->files[i];
            if (theirs == own[i]) continue;
            node.error += node.error.empty() ? "" : "; ";
            node.error.append(printable(own[i].path));
            if (!theirs.error.empty()) {
                node.error.append(": " + printable(theirs.error));
            } else if (theirs.bytes != own[i].bytes) {
                node.error += fmt::format(": {} bytes there, {} here", theirs.bytes, own[i].bytes);
            } else {
                node.error += ": same size, other content";
            }
        }
    }
    fail_if_bad_nodes("files are missing or differ; copy them on");
}

void Supervisor::prepare() {
    if (end_now_) return;
    if (hosts_tell_addresses()) return choose_meeting_place();
    PrepareRequest request;
    request.address = spec_.master_address;
    request.port = spec_.master_port;
    request.loopback_only = spec_.nodes.size() == 1 || spec_.transport == TransportKind::kLocal;
    send(0, FrameKind::kPrepare, encode(request));
    pump([&] { return end_now_ || nodes_[0].prepared || nodes_[0].ended; },
         steady_clock::now() + spec_.connect_max);
    if (end_now_) return;
    if (!nodes_[0].prepared && nodes_[0].error.empty()) lose_node(0, "no answer");
    // The host was reached: what it lacks is a matter of its set-up.
    const auto setup = static_cast<uint32_t>(ExitCode::kSetup);
    fail_if_bad_nodes("no place for the ranks to meet on",
                      nodes_[0].problem_code == setup ? ExitCode::kSetup : ExitCode::kHosts);
    rendezvous_ = *nodes_[0].prepared;
}

StartRequest Supervisor::start_request(size_t node, int restart_count) const {
    StartRequest request;
    request.target_kind = spec_.target_kind;
    request.inherit_all = spec_.environment.inherit_all;
    request.working_directory = spec_.working_directory;
    request.defaults = nodes_[node].network;
    request.binding = spec_.binding;
    for (const PlannedWorker& planned : spec_.nodes[node].workers) {
        WorkerEnvironment environment = planned.environment;
        environment.master_address = rendezvous_.address;
        environment.master_port = static_cast<int>(rendezvous_.port);
        environment.restart_count = restart_count;
        environment.max_restarts = spec_.max_restarts;
        if (drop_devices_) environment.devices.clear();
        StartRequest::Worker worker;
        worker.rank = environment.rank;
        worker.takes_rendezvous = environment.rank == 0;
        worker.command = planned.command;
        worker.environment = spec_.environment.set;
        for (auto& variable : environment.variables()) {
            worker.environment.push_back(std::move(variable));
        }
        request.workers.push_back(std::move(worker));
    }
    return request;
}

void Supervisor::start_workers(int restart_count) {
    starting_ = true;
    started_at_ = steady_clock::now();
    for (size_t i = 0; i < nodes_.size(); ++i) {
        send(i, FrameKind::kStart, encode(start_request(i, restart_count)));
    }
    pump(
        [&] {
            return end_now_ || stop_at_ ||
                   std::all_of(ranks_.begin(), ranks_.end(),
                               [](const auto& r) { return r.started || r.ended; });
        },
        steady_clock::now() + spec_.connect_max);
    output_.write_run_file(-1);
    if (spec_.log.print_environment && !end_now_ && !stop_at_) output_.print_environments();
}

void Supervisor::watch_workers() {
    while (!all_ranks_ended() && !end_now_) {
        auto deadline = kNever;
        if (stop_at_) deadline = std::min(deadline, *stop_at_);
        if (save_asked_) deadline = std::min(deadline, save_deadline_);
        if (steady_clock::now() >= deadline) break;
        const bool had_stop = stop_at_.has_value();
        const bool had_save = save_asked_;
        pump(
            [&] {
                return all_ranks_ended() || end_now_ || stop_at_.has_value() != had_stop ||
                       save_asked_ != had_save;
            },
            deadline);
    }
    if (agents_end_by_) pump([&] { return end_now_ || !lost_node_.empty(); }, *agents_end_by_);
}

bool Supervisor::restart_may_follow(int restart_count) const {
    if (interrupted()) return false;
    const AttemptResult so_far = conclude();
    return decide_restart({spec_.target_kind, so_far.exit_code, so_far.may_restart, restart_count,
                           spec_.max_restarts}) == RestartVerdict::kRestart;
}

void Supervisor::stop_all(bool come_again) {
    stopping_ = true;
    send_all(FrameKind::kStop, encode(StopRequest{come_again}));
    for (size_t i = 0; i < nodes_.size(); ++i) {
        transport_.close_input(i);
        // Nothing of the job is on a host that is still being reached.
        if (!nodes_[i].greeted && !nodes_[i].ended) lose_node(i, "it was not reached yet");
    }
    const auto limit =
        steady_clock::now() + (starting_ ? kUnkillableMax + kFarewellMax : kFarewellMax);
    const auto over = [](const Node& node) { return node.ended || node.gone; };
    if (!pump([&] { return all_nodes(over); }, limit)) {
        for (size_t i = 0; i < nodes_.size(); ++i) {
            if (!over(nodes_[i])) lose_node(i, "its agent did not end");
        }
    }
}

bool Supervisor::port_was_taken() const {
    if (spec_.target_kind == TargetKind::kTorchScript || spec_.master_port != 0) return false;
    if (!ranks_.front().failed() || steady_clock::now() - started_at_ > kPortClashMax) return false;
    for (const std::string& line : output_.last_lines(0)) {
        if (line.find("EADDRINUSE") != std::string::npos ||
            line.find("ddress already in use") != std::string::npos) {
            return true;
        }
    }
    return false;
}

AttemptResult Supervisor::conclude() const {
    AttemptResult result;
    if (interrupts_ > 0) {
        result.exit_code = static_cast<int>(ExitCode::kInterrupted);
        result.report = "dslaunch: interrupted; every rank has ended\n";
        // Losing a node is why a scheduler ends the others.
        if (!lost_node_.empty()) result.report += "dslaunch: " + lost_node_ + "\n";
        const auto failed = find_culprit(spec_.target_kind, ranks_);
        // It was asked to save and could not: not what Ctrl-C wanted.
        if (failed && ranks_[*failed].failure && !ranks_[*failed].told_to_end) {
            result.report +=
                describe_failure(ranks_, *failed, output_.last_lines(ranks_[*failed].rank));
        }
        return result;
    }
    if (output_lost_) {
        result.exit_code = kOutputLostCode;
        result.report =
            "dslaunch: nobody reads the output of the ranks any more; they were ended, as SIGPIPE "
            "ends a program (redirect stdout to a file or /dev/null to go on without a reader)\n";
        return result;
    }
    result.exit_code = job_exit_code(spec_.target_kind, ranks_);
    const auto culprit = find_culprit(spec_.target_kind, ranks_);
    // A rank that only lost its peer may have been heard before the host that took the peer along.
    const bool rank_is_to_blame =
        culprit && !ranks_[*culprit].told_to_end && !ranks_[*culprit].only_lost_a_peer() &&
        !(agents_end_by_ && ranks_[*culprit].exited.signal_number == SIGKILL);
    if (!lost_node_.empty() && !rank_is_to_blame) {
        result.exit_code = static_cast<int>(ExitCode::kHosts);
        result.may_restart = true;
        result.report = "dslaunch: " + lost_node_ + "\n" + describe_ranks(ranks_);
        return result;
    }
    if (!culprit) return result;
    // A program that could not be started will not be startable a moment later.
    result.may_restart = ranks_[*culprit].exited.start_error.empty();
    result.port_was_taken = lost_node_.empty() && port_was_taken();
    result.report = describe_failure(ranks_, *culprit, output_.last_lines(ranks_[*culprit].rank));
    return result;
}

}  // namespace dslaunch::launch

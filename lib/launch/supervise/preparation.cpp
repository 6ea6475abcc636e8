#include "launch/supervise/preparation.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "launch/files/file_facts.h"
#include "launch/plan/launch_plan.h"
#include "launch/process/timing.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Returns advice for hosts of SPEC on which no agent could be started. NAMES_ALONE: the only fault
// is that names do not resolve.
std::string host_advice(const JobSpec& spec, bool names_alone) {
    std::string text =
        names_alone ? "Check the host names in the hostfile, /etc/hosts and ~/.ssh/config"
                    : "`dslaunch hosts trust` sets up keys and known_hosts, --push copies missing "
                      "files";
    if (spec.nodes.size() > 1) text += "; --exclude leaves hosts out";
    if (spec.nodes.size() > 1 && spec.target_kind == TargetKind::kModel)
        text += "; with --nnodes MIN:MAX training uses only the hosts that answer";
    return text;
}

// The interval at which the agents' frames are handled while large files are read here.
constexpr milliseconds kLookWhileReading{100};

// Returns the differences between a host's files and OWN, in words; empty if they are equal.
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
            text += fmt::format(": {} bytes on that host, {} bytes here", theirs[i].bytes,
                                own[i].bytes);
        } else {
            text += ": same size, but different content";
        }
    }
    return text;
}

}  // namespace

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
    compare_programs();  // so that one message names bad hosts of every kind
    const bool by_ssh =
        spec_.transport == TransportKind::kSsh || spec_.transport == TransportKind::kOpenSsh;
    const bool names_alone = std::ranges::all_of(fleet_.nodes(), [](const Fleet::Node& node) {
        return node.error.empty() || node.error.find(" does not resolve: ") != std::string::npos;
    });
    fleet_.fail_if_bad("cannot start an agent on", ExitCode::kHosts,
                       by_ssh ? host_advice(spec_, names_alone) : "");
    for (size_t i = 0; i < nodes_.size(); ++i) {
        output_.run_file().add_node(fleet_.nodes()[i].hello, spec_.nodes[i].name,
                                    nodes_[i].facts ? &*nodes_[i].facts : nullptr);
    }
}

void Preparation::compare_programs() {
    if (is_local()) return;
    const std::string hash = own_binary_hash();
    for (size_t i = 0; i < nodes_.size(); ++i) {
        const Fleet::Node& node = fleet_.nodes()[i];
        if (!node.greeted || node.ended || node.hello.binary_hash == hash) continue;
        const std::string other = describe_other_processor(node.hello);
        fleet_.blame(
            i, !other.empty()
                   ? other
                   : fmt::format("its dslaunch (version {}) differs from this machine's dslaunch "
                                 "({}): copy this machine's dslaunch to the same path on that host",
                                 printable(node.hello.version), DSL_VERSION));
    }
}

void Preparation::choose_devices() {
    // The devices of a local job need not be chosen here: the plan already contains this machine's
    // GPUs.
    const bool asked = spec_.device == DeviceRequest::kCuda;
    const bool open = spec_.device == DeviceRequest::kAuto;
    if (is_local() || (!asked && !open)) return;
    if (open && fleet_.all([](const Fleet::Node& node) { return node.hello.gpus == 0; })) {
        drops_devices_ = true;
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
        fleet_.blame(i, fmt::format("it has {}, but {} need GPUs {}", counted(gpus, "GPU"),
                                    counted(wanted, "worker"), printable(first.devices)));
    }
    fleet_.fail_if_bad(
        "there are too few GPUs (use fewer, leave hosts out, or give --device cpu) on");
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
    const bool cuda = spec_.device != DeviceRequest::kCpu && !drops_devices_;
    const std::vector<std::string> problems =
        check_machines(machines, needs_of_worker(spec_.required_files.front(), cuda));
    for (size_t i = 0; i < nodes_.size(); ++i) fleet_.blame(i, problems[i]);
    fleet_.fail_if_bad("dsworker cannot run, or does not match the other hosts, on");
}

// Returns the facts of our own files; handles the agents' frames meanwhile. Throws Error{kInput,
// kInterrupted}.
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
            // The interpreters of two hosts may be different files, since an environment refers to
            // each host's own Python. Only a missing interpreter is an error.
            const std::string error = theirs.back().error;
            theirs.pop_back();
            if (!error.empty()) {
                fleet_.blame(
                    i, fmt::format("no Python at {}: {}; the job uses the launcher's Python "
                                   "(VIRTUAL_ENV, CONDA_PREFIX, PATH): install it at the same path "
                                   "on this host, or use --no_python with a program of this host",
                                   printable(interpreter), printable(error)));
            }
        }
        fleet_.blame(i, describe_difference(own, theirs));
    }
    fleet_.fail_if_bad("files are missing or differ (copy them, or give --push) on");
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
        if (drops_devices_) place.devices.clear();
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

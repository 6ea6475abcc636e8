#include "launcher/push_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <numeric>
#include <optional>
#include <set>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "launch/file_facts.h"
#include "launch/host_addresses.h"
#include "launch/installation.h"
#include "launch/job.h"
#include "launch/output_groups.h"
#include "launch/push_job.h"
#include "launch/tree_transport.h"
#include "launcher/bundle_archive.h"
#include "launcher/host_command.h"
#include "launcher/push_files.h"

namespace dslaunch {
namespace {

constexpr std::string_view kUsage =
    "usage: dslaunch push [options]                 dslaunch, dsworker and their libraries\n"
    "       dslaunch push [options] [--to DIR] FILE...   models, data; folders with all in them\n"
    "       dslaunch push [options] --bundle FILE        what `dslaunch bundle` wrote\n\n"
    "Sends what differs to all hosts at once, by content: a file that a host has is not sent, of\n"
    "one that changed only the parts that did, and what was cut off goes on where it was. Files "
    "go\n"
    "to the path that they have here, or below DIR. A host needs nothing but sshd, sh and tar:\n"
    "dslaunch itself comes first where it is missing or another one.\n";

PushJob job_for(const JobSpec& spec, const std::vector<HostAddress>& hosts, int signal_fd) {
    PushJob job;
    job.hosts = hosts;
    JobSpec direct = spec;
    direct.fanout = 0;  // hosts may lack the dslaunch that a tree needs
    job.make_transport = [direct] { return make_job_transport(direct); };
    job.connect_max = spec.connect_max;
    job.signal_fd = signal_fd;
    return job;
}

void add_installation(PushJob& job) {
    for (PushFile& file : list_installation()) job.files.push_back(std::move(file));
    const std::string worker = installation_paths().programs + "/dsworker";
    if (::access(worker.c_str(), X_OK) == 0) job.check_program = worker;
}

// What BUNDLE holds, unpacked into FOLDER: programs and libraries to their places beside this
// dslaunch's, files below TO (empty: files/ beside the programs' folder).
void add_bundle(const std::string& bundle, const std::string& folder, const std::string& to,
                PushJob& job) {
    const InstallationPaths paths = installation_paths();
    for (const BundleEntry& entry : unpack_bundle(bundle, folder)) {
        const std::string local = folder + "/" + entry.name;
        std::string target = paths.prefix + "/" + entry.name;
        if (entry.name.starts_with("bin/")) target = paths.programs + entry.name.substr(3);
        if (!to.empty() && entry.name.starts_with("files/")) target = to + entry.name.substr(5);
        if (entry.name == "bin/dslaunch" && entry.sha256 != own_binary_hash()) {
            fail(ExitCode::kUsage,
                 "{} holds another dslaunch than this one: unpack it (tar --zstd -xf) and start "
                 "its bin/dslaunch",
                 bundle);
        }
        if (entry.name == "bin/dsworker") job.check_program = target;
        job.files.push_back({local, target, {}, entry.name == "bin/libdsl_cuda.so"});
    }
}

std::string describe(const PushedHost& host) {
    const PushResult& result = host.result;
    std::string text = fmt::format("{} file(s) sent, {}; {} were there", result.files_sent,
                                   to_text(Bytes{result.bytes_sent}), result.files_equal);
    if (host.got_dslaunch) text = "dslaunch installed; " + text;
    return text;
}

// "te[1-3] (3 hosts): TEXT", equal texts together, for the hosts where a push worked or failed.
std::string summary(const PushJob& job, const std::vector<PushedHost>& hosts, bool of_failures) {
    std::vector<std::string> texts;
    std::vector<size_t> who;
    for (size_t i = 0; i < hosts.size(); ++i) {
        if (hosts[i].result.error.empty() == of_failures) continue;
        texts.push_back(of_failures ? hosts[i].result.error : describe(hosts[i]));
        who.push_back(i);
    }
    std::string text;
    for (const OutputGroup& group : group_equal(texts)) {
        std::vector<std::string> names;
        for (const size_t host : group.hosts) names.push_back(job.hosts[who[host]].name);
        text += fmt::format("{}{}{}: {}\n", of_failures ? "  " : "", fold_names(names),
                            names.size() == 1 ? "" : fmt::format(" ({} hosts)", names.size()),
                            group.text);
    }
    return text;
}

std::string as_json(const PushJob& job, const std::vector<PushedHost>& hosts) {
    JsonWriter json;
    json.begin_object().key("hosts").begin_array();
    for (size_t i = 0; i < hosts.size(); ++i) {
        const PushResult& result = hosts[i].result;
        json.begin_object().field("host", job.hosts[i].name).field("good", result.error.empty());
        if (!result.error.empty()) json.field("error", result.error);
        json.field("got_dslaunch", hosts[i].got_dslaunch).field("files_sent", result.files_sent);
        json.field("files_equal", result.files_equal).field("bytes_sent", result.bytes_sent);
        json.end_object();
    }
    json.end_array().end_object();
    return json.text() + "\n";
}

// Of an elastic job: any of its hosts may be used by some attempt.
std::vector<PlannedNode> every_node(const ElasticRules& elastic) {
    std::vector<size_t> all(elastic.hosts.size());
    std::iota(all.begin(), all.end(), size_t{0});
    return elastic.plan(all);
}

size_t count_bad(const std::vector<PushedHost>& hosts) {
    return static_cast<size_t>(std::count_if(
        hosts.begin(), hosts.end(), [](const PushedHost& h) { return !h.result.error.empty(); }));
}

}  // namespace

int push_command(std::span<const std::string> arguments) {
    std::string to, bundle;
    bool json = false;
    const HostCommand syntax{
        kUsage,
        {{"to", "DIR", "put FILEs below this folder of the hosts, made if it is missing",
          [&](const std::string& value) { to = absolute_path(value); }},
         {"bundle", "FILE", "send what `dslaunch bundle` wrote",
          [&](const std::string& value) { bundle = value; }},
         {"json", "", "one JSON object with what each host got",
          [&](const std::string&) { json = true; }}}};
    const ParsedCommand parsed = parse_host_command(arguments, syntax);
    if (parsed.help) return 0;
    if (!bundle.empty() && !parsed.words.empty()) {
        fail(ExitCode::kUsage, "--bundle and FILEs exclude each other");
    }
    if (!to.empty() && bundle.empty() && parsed.words.empty()) {
        fail(ExitCode::kUsage, "--to is for FILEs; dslaunch itself goes to the path it has here");
    }
    const UniqueFd signals = open_end_signals();
    ::signal(SIGPIPE, SIG_IGN);
    const HostTargets targets = find_hosts(parsed.hosts);
    if (targets.spec.transport == TransportKind::kLocal) {
        fail(ExitCode::kUsage,
             "every host is this machine: nothing to send; name others with --hostfile");
    }
    PushJob job = job_for(targets.spec, targets.hosts, signals.get());
    std::optional<ScratchFolder> scratch;  // until everything is sent
    for (const std::string& word : parsed.words) {
        for (const NamedFile& file : list_files(word)) {
            const std::string target = to.empty() ? file.local_path : to + "/" + file.below;
            job.files.push_back({file.local_path, target, {}, false});
        }
    }
    if (!bundle.empty()) {
        scratch.emplace();
        add_bundle(bundle, scratch->path(), to, job);
    }
    if (parsed.words.empty() && bundle.empty()) add_installation(job);
    const TransportKind way = targets.spec.transport;
    if (way != TransportKind::kSsh && way != TransportKind::kOpenSsh &&
        way != TransportKind::kLocal)
        fail(ExitCode::kUsage, "dslaunch push goes over ssh: give --launcher ssh or openssh");
    const std::vector<PushedHost> hosts = run_push(job);
    fmt::print("{}", json ? as_json(job, hosts) : summary(job, hosts, false));
    std::fflush(stdout);
    const size_t bad = count_bad(hosts);
    if (bad == 0) return 0;
    fmt::print(stderr, "dslaunch: push failed on {} of {} host(s):\n{}", bad, hosts.size(),
               summary(job, hosts, true));
    return static_cast<int>(ExitCode::kHosts);
}

void push_for_job(const JobSpec& spec) {
    const UniqueFd signals = open_end_signals();
    ::signal(SIGPIPE, SIG_IGN);
    JobSpec all = spec;
    if (spec.elastic.on()) all.nodes = every_node(spec.elastic);
    PushJob job = job_for(all, addresses_of(all.nodes), signals.get());
    if (spec.target_kind == TargetKind::kTorchScript) add_installation(job);
    std::set<std::string> there;
    for (const PushFile& file : job.files) there.insert(file.target_path);
    for (const std::string& path : spec.required_files) {
        if (there.insert(path).second) job.files.push_back({path, path, {}, false});
    }
    const std::vector<PushedHost> hosts = run_push(job);
    const size_t bad = count_bad(hosts);
    const size_t least =
        spec.elastic.on() ? static_cast<size_t>(spec.elastic.nodes.min) : hosts.size();
    if (hosts.size() - bad < least) {
        std::string list = summary(job, hosts, true);
        list.pop_back();
        fail(ExitCode::kHosts, "push failed on {} of {} host(s):\n{}", bad, hosts.size(), list);
    }
    if (bad != 0) {
        fmt::print(stderr, "dslaunch: warning: push failed on {} of {} host(s):\n{}", bad,
                   hosts.size(), summary(job, hosts, true));
    }
    if (!spec.log.quiet) fmt::print(stderr, "dslaunch: push: {}", summary(job, hosts, false));
}

}  // namespace dslaunch

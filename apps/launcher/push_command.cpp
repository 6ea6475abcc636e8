#include "launcher/push_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "launch/installation.h"
#include "launch/job.h"
#include "launch/output_groups.h"
#include "launch/push_job.h"
#include "launcher/host_command.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUsage =
    "usage: dslaunch push [options]                 dslaunch, dsworker and their libraries\n"
    "       dslaunch push [options] [--to DIR] FILE...   models, data; folders with all in them\n\n"
    "Sends what differs to all hosts at once, by content: a file that a host has is not sent, of\n"
    "one that changed only the parts that did, and what was cut off goes on where it was. Files "
    "go\n"
    "to the path that they have here, or below DIR. A host needs nothing but sshd, sh and tar:\n"
    "dslaunch itself comes first where it is missing or another one.\n";

std::string absolute(const std::string& path) {
    return fs::absolute(path).lexically_normal().string();
}

// FILE, or every file below it; at their own paths or below TO.
void add_files(const std::string& file, const std::string& to, std::vector<PushFile>& files) {
    std::string path = absolute(file);
    if (path.size() > 1 && path.ends_with('/')) path.pop_back();
    const std::string target = to.empty() ? path : to + "/" + fs::path(path).filename().string();
    std::error_code error;
    if (!fs::is_directory(path, error)) {
        if (!fs::is_regular_file(path, error)) {
            fail(ExitCode::kInput, "{}: {}", path, error ? error.message() : "is no plain file");
        }
        return files.push_back({path, target, {}, false});
    }
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(path, error)) {
        if (entry.is_directory()) continue;
        if (!entry.is_regular_file()) {
            fail(ExitCode::kInput, "{}: is no plain file; leave it out of the folder",
                 entry.path().string());
        }
        found.push_back(entry.path().string());
    }
    if (error) fail(ExitCode::kInput, "{}: {}", path, error.message());
    std::sort(found.begin(), found.end());
    for (const std::string& one : found) {
        files.push_back({one, target + one.substr(path.size()), {}, false});
    }
}

PushJob job_for(const JobSpec& spec, const std::vector<HostAddress>& hosts, int signal_fd) {
    PushJob job;
    job.hosts = hosts;
    job.make_transport = [&spec] { return make_transport(spec.transport, spec.ssh_config_path); };
    job.connect_max = spec.connect_max;
    job.signal_fd = signal_fd;
    return job;
}

void add_installation(PushJob& job) {
    std::string note;
    for (PushFile& file : installation_files(note)) job.files.push_back(std::move(file));
    if (!note.empty()) fmt::print(stderr, "dslaunch: {}\n", note);
    const std::string worker = installation_paths().programs + "/dsworker";
    if (::access(worker.c_str(), X_OK) == 0) job.check_program = worker;
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

size_t count_bad(const std::vector<PushedHost>& hosts) {
    return static_cast<size_t>(std::count_if(
        hosts.begin(), hosts.end(), [](const PushedHost& h) { return !h.result.error.empty(); }));
}

}  // namespace

int push_command(std::span<const std::string> arguments) {
    std::string to;
    bool json = false;
    const HostCommand syntax{
        kUsage,
        {{"to", "DIR", "put FILEs below this folder of the hosts, made if it is missing",
          [&](const std::string& value) {
              to = absolute(value);
              if (to.size() > 1 && to.ends_with('/')) to.pop_back();
          }},
         {"json", "", "one JSON object with what each host got",
          [&](const std::string&) { json = true; }}}};
    const ParsedCommand parsed = parse_host_command(arguments, syntax);
    if (parsed.help) return 0;
    if (!to.empty() && parsed.words.empty()) {
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
    for (const std::string& file : parsed.words) add_files(file, to, job.files);
    if (parsed.words.empty()) add_installation(job);
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
    std::vector<HostAddress> addresses;
    for (const PlannedNode& node : spec.nodes) {
        addresses.push_back({node.name, node.user, node.port, node.address, {}});
    }
    PushJob job = job_for(spec, addresses, signals.get());
    if (spec.target_kind == TargetKind::kTorchScript) add_installation(job);
    std::set<std::string> there;
    for (const PushFile& file : job.files) there.insert(file.target_path);
    for (const std::string& path : spec.required_files) {
        if (there.insert(path).second) job.files.push_back({path, path, {}, false});
    }
    const std::vector<PushedHost> hosts = run_push(job);
    const size_t bad = count_bad(hosts);
    if (bad != 0) {
        std::string list = summary(job, hosts, true);
        list.pop_back();
        fail(ExitCode::kHosts, "push failed on {} of {} host(s):\n{}", bad, hosts.size(), list);
    }
    if (!spec.log.quiet) fmt::print(stderr, "dslaunch: push: {}", summary(job, hosts, false));
}

}  // namespace dslaunch

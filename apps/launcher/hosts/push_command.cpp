// `dslaunch push`: sends dslaunch, its libraries, models and data to all hosts. `run --push` uses
// it too.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <numeric>
#include <optional>
#include <set>

#include "base/bytes.h"
#include "base/error.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/json.h"
#include "launch/files/file_facts.h"
#include "launch/fleet/fleet.h"
#include "launch/hosts/host_list.h"
#include "launch/process/standard_streams.h"
#include "launch/push/push_sender.h"
#include "launch/supervise/job.h"
#include "launch/transport/transport.h"
#include "launch/transport/tree/tree_transport.h"
#include "launcher/hosts/bundle_archive.h"
#include "launcher/hosts/host_command.h"
#include "launcher/hosts/push_files.h"
#include "launcher/run/commands.h"

namespace dslaunch::launcher {
namespace {

HelpPage push_page() {
    return {
        .does =
            "Sends dslaunch, its libraries, or models and data to all hosts at once. Sends only "
            "what is missing: skips files that a host already has, sends only the changed parts of "
            "changed files, and continues interrupted files. Files go to the same path as here, or "
            "below --to DIR; folders are sent with everything in them. A host needs only sshd, sh "
            "and tar: dslaunch itself is sent first if it is missing or differs.",
        .examples = {"dslaunch push --hostfile hostfile",
                     "dslaunch push --hostfile hostfile train.pt data/corpus.tokens",
                     "dslaunch push --hostfile hostfile --bundle dslaunch.tar.zst"},
        .exit_codes = "67 when a host did not get all files.",
        .docs = "docs/guide/hosts.md",
        .usage = {"dslaunch push [options] (dslaunch, dsworker and their libraries)",
                  "dslaunch push [options] [--to DIR] FILE... (models, data)",
                  "dslaunch push [options] --bundle FILE"}};
}

launch::PushJob job_for(const launch::JobSpec& spec, const std::vector<launch::HostAddress>& hosts,
                        int signal_fd) {
    launch::PushJob job;
    job.hosts = hosts;
    launch::JobSpec direct = spec;
    direct.fanout = 0;  // a tree needs dslaunch, which hosts may lack
    job.make_transport = [direct] { return launch::make_job_transport(direct); };
    job.connect_max = spec.connect_max;
    job.signal_fd = signal_fd;
    return job;
}

void add_installation(launch::PushJob& job) {
    for (launch::PushFile& file : list_installation()) job.files.push_back(std::move(file));
    const std::string worker = launch::installation_paths().programs + "/dsworker";
    if (::access(worker.c_str(), X_OK) == 0) job.check_program = worker;
}

// Unpacks BUNDLE into FOLDER, and adds the bundle's files to the files that JOB sends to the hosts.
// Programs and libraries get the same paths as in the installation of this dslaunch. The user's
// files go below TO. If TO is empty, they go into files/ next to the programs' folder.
void add_bundle(const std::string& bundle, const std::string& folder, const std::string& to,
                launch::PushJob& job) {
    const launch::InstallationPaths paths = launch::installation_paths();
    for (const BundleEntry& entry : unpack_bundle(bundle, folder)) {
        const std::string local = folder + "/" + entry.name;
        std::string target = paths.prefix + "/" + entry.name;
        if (entry.name.starts_with("bin/")) target = paths.programs + entry.name.substr(3);
        if (!to.empty() && entry.name.starts_with("files/")) target = to + entry.name.substr(5);
        if (entry.name == "bin/dslaunch" && entry.sha256 != launch::own_binary_hash()) {
            fail(ExitCode::kUsage,
                 "{} contains a different dslaunch than this one: unpack the bundle (tar --zstd "
                 "-xf) and start bin/dslaunch in it",
                 bundle);
        }
        if (entry.name == "bin/dsworker") job.check_program = target;
        job.files.push_back({local, target, {}, entry.name.ends_with("/libdsl_cuda.so")});
    }
}

std::string describe(const launch::PushedHost& host) {
    const launch::PushResult& result = host.result;
    std::string text = fmt::format("{} sent, {}; {} already up to date",
                                   counted(static_cast<int64_t>(result.files_sent), "file"),
                                   to_text(Bytes{result.bytes_sent}), result.files_equal);
    if (host.got_dslaunch) text = "dslaunch installed; " + text;
    return text;
}

// Returns lines such as "te[1-3] (3 hosts): TEXT" for the hosts on which the push worked or, if
// OF_FAILURES, for the hosts on which it failed. Hosts with the same text share a line.
std::string summary(const launch::PushJob& job, const std::vector<launch::PushedHost>& hosts,
                    bool of_failures) {
    std::vector<std::string> texts;
    std::vector<size_t> who;
    for (size_t i = 0; i < hosts.size(); ++i) {
        if (hosts[i].result.error.empty() == of_failures) continue;
        texts.push_back(of_failures ? hosts[i].result.error : describe(hosts[i]));
        who.push_back(i);
    }
    std::string text;
    for (const launch::EqualTexts& group : launch::group_equal(texts)) {
        std::vector<std::string> names;
        for (const size_t host : group.hosts) names.push_back(job.hosts[who[host]].name);
        text += fmt::format("{}{}{}: {}\n", of_failures ? "  " : "", launch::fold_names(names),
                            names.size() == 1 ? "" : fmt::format(" ({} hosts)", names.size()),
                            group.text);
    }
    return text;
}

std::string as_json(const launch::PushJob& job, const std::vector<launch::PushedHost>& hosts) {
    JsonWriter json;
    json.begin_object().key("hosts").begin_array();
    for (size_t i = 0; i < hosts.size(); ++i) {
        const launch::PushResult& result = hosts[i].result;
        json.begin_object().field("host", job.hosts[i].name).field("good", result.error.empty());
        if (!result.error.empty()) json.field("error", result.error);
        json.field("got_dslaunch", hosts[i].got_dslaunch).field("files_sent", result.files_sent);
        json.field("files_equal", result.files_equal).field("bytes_sent", result.bytes_sent);
        json.end_object();
    }
    json.end_array().end_object();
    return json.text() + "\n";
}

// Returns all nodes of an elastic job, because an attempt may use any of them.
std::vector<launch::PlannedNode> every_node(const launch::ElasticRules& elastic) {
    std::vector<size_t> all(elastic.hosts.size());
    std::iota(all.begin(), all.end(), size_t{0});
    return elastic.plan(all);
}

size_t count_bad(const std::vector<launch::PushedHost>& hosts) {
    return static_cast<size_t>(
        std::count_if(hosts.begin(), hosts.end(),
                      [](const launch::PushedHost& h) { return !h.result.error.empty(); }));
}

}  // namespace

int push_command(std::span<const std::string> arguments) {
    std::string to, bundle;
    bool json = false;
    const HostCommand syntax{
        push_page(),
        {{"to", "DIR", "put FILEs into this folder on the hosts; it is made if it is missing",
          [&](const std::string& value) { to = absolute_path(value); }},
         {"bundle", "FILE", "send the archive that `dslaunch bundle` wrote",
          [&](const std::string& value) { bundle = value; }},
         {"json", "", "print one JSON object with what each host received",
          [&](const std::string&) { json = true; }}}};
    const ParsedCommand parsed = parse_host_command(arguments, syntax);
    if (parsed.help) return 0;
    if (!bundle.empty() && !parsed.words.empty()) {
        fail(ExitCode::kUsage, "--bundle and FILEs cannot be used together");
    }
    if (!to.empty() && bundle.empty() && parsed.words.empty()) {
        fail(ExitCode::kUsage,
             "--to is only for FILEs; dslaunch itself always goes to the same path as here");
    }
    const UniqueFd signals = launch::open_end_signals();
    ::signal(SIGPIPE, SIG_IGN);
    const HostTargets targets = find_hosts(parsed.hosts);
    if (targets.spec.transport == launch::TransportKind::kLocal) {
        fail(ExitCode::kUsage,
             "there is nothing to send, since every host is this machine; name other hosts with "
             "--hostfile");
    }
    launch::PushJob job = job_for(targets.spec, targets.hosts, signals.get());
    std::optional<ScratchFolder> scratch;  // kept until everything is sent
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
    const launch::TransportKind way = targets.spec.transport;
    if (way != launch::TransportKind::kSsh && way != launch::TransportKind::kOpenSsh &&
        way != launch::TransportKind::kLocal)
        fail(ExitCode::kUsage, "dslaunch push needs ssh: give --launcher ssh or openssh");
    const std::vector<launch::PushedHost> hosts = launch::run_push(job);
    launch::release_end_signals();  // from here on Ctrl-C ends this program at once
    fmt::print("{}", json ? as_json(job, hosts) : summary(job, hosts, false));
    std::fflush(stdout);
    const size_t bad = count_bad(hosts);
    if (bad == 0) return 0;
    std::string failures = summary(job, hosts, true);
    failures.pop_back();  // print_message adds the newline
    print_message(fmt::format("dslaunch: push failed on {} of {}:\n{}", bad,
                              counted(std::ssize(hosts), "host"), failures));
    return static_cast<int>(ExitCode::kHosts);
}

void push_for_job(const launch::JobSpec& spec) {
    const UniqueFd signals = launch::open_end_signals();
    ::signal(SIGPIPE, SIG_IGN);
    launch::JobSpec all = spec;
    if (spec.elastic.on()) all.nodes = every_node(spec.elastic);
    launch::PushJob job = job_for(all, launch::addresses_of(all.nodes), signals.get());
    if (spec.target_kind == launch::TargetKind::kModel) add_installation(job);
    std::set<std::string> there;
    for (const launch::PushFile& file : job.files) there.insert(file.target_path);
    for (const std::string& path : spec.required_files) {
        if (there.insert(path).second) job.files.push_back({path, path, {}, false});
    }
    const std::vector<launch::PushedHost> hosts = launch::run_push(job);
    const size_t bad = count_bad(hosts);
    const size_t least =
        spec.elastic.on() ? static_cast<size_t>(spec.elastic.nodes.min) : hosts.size();
    if (hosts.size() - bad < least) {
        std::string list = summary(job, hosts, true);
        list.pop_back();
        fail(ExitCode::kHosts, "push failed on {} of {}:\n{}", bad,
             counted(std::ssize(hosts), "host"), list);
    }
    if (bad != 0) {
        launch::write_last_words(fmt::format("dslaunch: warning: push failed on {} of {}:\n{}", bad,
                                             counted(std::ssize(hosts), "host"),
                                             summary(job, hosts, true)));
    }
    if (!spec.log.quiet)
        launch::write_last_words(fmt::format("dslaunch: push: {}", summary(job, hosts, false)));
}

}  // namespace dslaunch::launcher

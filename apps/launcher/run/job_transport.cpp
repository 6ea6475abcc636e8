#include "launcher/run/job_transport.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::launcher {
namespace {

// srun and mpirun may wait for a busy controller; pods and people may start agents much later.
constexpr std::chrono::seconds kSrunMax{60};
constexpr std::chrono::seconds kJoinMax{300};

// Checks launcher_args. Some transports ignore them. For ssh, they may only be `-o` options, and
// must not contain forwarding, a host or a command.
void check_launcher_args(const std::vector<std::string>& words, launch::TransportKind transport) {
    if (words.empty() || transport == launch::TransportKind::kLocal) return;
    if (transport == launch::TransportKind::kSsh || transport == launch::TransportKind::kJoin) {
        fail(ExitCode::kUsage,
             "--launcher_args: {}; use it with --launcher openssh, pdsh, openmpi or slurm, or put "
             "ssh options into a file and give it as --ssh_config",
             transport == launch::TransportKind::kSsh ? "the built-in ssh accepts no arguments"
                                                      : "dslaunch does not start agents that join");
    }
    if (transport != launch::TransportKind::kOpenSsh) return;
    for (size_t i = 0; i < words.size(); ++i) {
        const bool pair = words[i] == "-o" && i + 1 < words.size();
        const std::string option = pair                         ? words[++i]
                                   : words[i].starts_with("-o") ? words[i].substr(2)
                                                                : "";
        if (option.find('=') != std::string::npos) continue;
        fail(ExitCode::kUsage,
             "--launcher_args: `{}` does not have the form `-o NAME=VALUE`; dslaunch passes only "
             "options of this form to ssh",
             printable(words[i]));
    }
}

// Adds a note about options that matter only for other hosts. In a job on this machine alone, such
// options are no mistakes, but they have no effect.
void note_unused_options(const RunOptions& options, HostSource source,
                         std::vector<std::string>& notes) {
    std::vector<std::string> unused;
    if (!options.launcher.empty() && options.launcher != "local")
        unused.push_back("--launcher " + options.launcher);
    if (!options.launcher_args.empty()) unused.emplace_back("--launcher_args");
    if (options.ssh_port != 0) unused.emplace_back("--ssh_port");
    if (!options.ssh_config.empty()) unused.emplace_back("--ssh_config");
    if (!options.check_hosts) unused.emplace_back("--no_ssh_check");
    if (options.verify) unused.emplace_back("--verify");
    if (options.push) unused.emplace_back("--push");
    if (unused.empty()) return;
    notes.push_back(
        fmt::format("{} {} no effect, since every host is this machine and no ssh is used ({})",
                    join(unused, ", "), unused.size() == 1 ? "has" : "have",
                    source == HostSource::kThisMachine ? "--hostfile names other hosts"
                                                       : "with --force_multi, dslaunch uses ssh"));
}

// Refuses options that only matter for ssh if this job does not use ssh.
void check_ssh_options(const RunOptions& options, launch::TransportKind transport) {
    const bool calls_back =
        transport == launch::TransportKind::kJoin || transport == launch::TransportKind::kSlurm;
    const bool one_starter =
        transport == launch::TransportKind::kPdsh || transport == launch::TransportKind::kOpenMpi;
    const auto refuse = [&](bool given, const char* option, const char* why) {
        if (given) fail(ExitCode::kUsage, "{} has no effect here: {}; leave it out", option, why);
    };
    constexpr const char* kNoSsh = "no ssh is used, since the agents connect to this command";
    refuse(calls_back && options.ssh_port != 0, "--ssh_port", kNoSsh);
    refuse(calls_back && !options.ssh_config.empty(), "--ssh_config", kNoSsh);
    const bool tree = options.fanout.value_or(0) > 0;
    refuse(calls_back && tree, "--fanout", kNoSsh);
    refuse(one_starter && tree, "--fanout", "pdsh and mpirun start all agents themselves");
    refuse(transport == launch::TransportKind::kOpenSsh && tree && !options.launcher_args.empty(),
           "--fanout", "with --launcher_args this command connects to every host itself");
}

}  // namespace

std::vector<std::string> choose_transport(const RunOptions& options, const Machine& machine,
                                          HostSource source, std::vector<launch::HostSlots>& hosts,
                                          launch::JobSpec& spec) {
    std::vector<std::string> notes;
    const std::string& launcher = options.launcher;
    const bool named = source != HostSource::kThisMachine;
    const bool all_local =
        std::all_of(hosts.begin(), hosts.end(), [&](const launch::HostSlots& entry) {
            return launch::is_this_machine(entry.host.name, machine.host_name);
        });
    const bool stays = all_local && !options.force_multi && launcher != "slurm";
    const bool local = launcher == "local" || (!named && !options.force_multi) ||
                       (stays && source != HostSource::kJoin && source != HostSource::kMpi);
    spec.connect_max = options.connect_timeout.value_or(spec.connect_max);
    if (source == HostSource::kJoin) {
        spec.transport = launch::TransportKind::kJoin;
        spec.listen = listen_text(options);
        spec.serves_node_0 = options.no_ssh;
        if (options.no_ssh) spec.master_port = 0;  // agents use the named port
        spec.connect_max = options.connect_timeout.value_or(kJoinMax);
    } else if (source == HostSource::kMpi) {
        spec.transport = launch::TransportKind::kJoin;
        spec.listen = machine.joining.listen;
        spec.serves_node_0 = true;
        spec.connect_max = options.connect_timeout.value_or(kSrunMax);
    } else if (local) {
        spec.transport = launch::TransportKind::kLocal;
        note_unused_options(options, source, notes);
    } else if (launcher == "slurm" || (launcher.empty() && source == HostSource::kSlurm)) {
        spec.transport = launch::TransportKind::kSlurm;
        spec.connect_max = options.connect_timeout.value_or(kSrunMax);
    } else {
        spec.transport = launcher == "openssh"   ? launch::TransportKind::kOpenSsh
                         : launcher == "pdsh"    ? launch::TransportKind::kPdsh
                         : launcher == "openmpi" ? launch::TransportKind::kOpenMpi
                                                 : launch::TransportKind::kSsh;
    }
    spec.launcher_args = options.launcher_args;
    check_launcher_args(options.launcher_args, spec.transport);
    // Simulated hosts all run on this machine, so a tree of launchers would not help.
    spec.fanout = options.fanout.value_or(local ? 0 : launch::kDefaultFanout);
    for (launch::HostSlots& entry : hosts) {
        if (entry.host.port == 0) entry.host.port = options.ssh_port;
    }
    return notes;
}

void check_transport(const RunOptions& options, HostSource source, const launch::JobSpec& spec) {
    const launch::TransportKind transport = spec.transport;
    check_ssh_options(options, transport);
    const bool by_ssh =
        transport == launch::TransportKind::kSsh || transport == launch::TransportKind::kOpenSsh;
    if (source == HostSource::kMpi && spec.max_restarts > 0) {
        fail(ExitCode::kUsage,
             "--max_restarts does not work under mpirun, which ends all its copies when one fails; "
             "start dslaunch without mpirun and give --launcher openmpi, or restart the whole "
             "mpirun command yourself");
    }
    if (spec.elastic.on() && (transport == launch::TransportKind::kSlurm ||
                              transport == launch::TransportKind::kOpenMpi)) {
        fail(ExitCode::kUsage,
             "an elastic number of nodes needs agents that are started one by one, but srun and "
             "mpirun start all or none; give --launcher ssh and a --hostfile");
    }
    if (options.push && !by_ssh && transport != launch::TransportKind::kLocal) {
        fail(ExitCode::kUsage,
             "--push needs ssh: give --launcher ssh or openssh, or run `dslaunch push` first");
    }
}

}  // namespace dslaunch::launcher

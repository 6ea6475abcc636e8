// Runs jobs as the launcher does, but without its command line. It builds a JobSpec from plain
// words, so that tests need neither hostfiles nor dsworker. `launch_probe agent --stdio` is the
// agent, `launch_probe relay --stdio` the relay.
//   launch_probe [kind=program|train] [transport=local|ssh|openssh|join|slurm|pdsh|openmpi]
//                [hosts=a,b] [workers=N] [grace_ms=N]
//                [output=DIR] [ssh_config=FILE] [cwd=DIR] [files=a,b] [restarts=N]
//                [listen=HOST:PORT] [connect_ms=N] [fanout=N] -- command…
#include <unistd.h>

#include <cstdio>
#include <span>
#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "launch/agent/agent_command.h"
#include "launch/plan/join_token.h"
#include "launch/supervise/job.h"
#include "launch/transport/tree/relay.h"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

void apply(JobSpec& spec, std::vector<std::string>& hosts, int& workers, const std::string& word) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    const int number = static_cast<int>(parse_int(value).value_or(0));
    if (name == "kind") {
        spec.target_kind = value == "train" ? TargetKind::kModel : TargetKind::kProgram;
    } else if (name == "transport") {
        spec.transport = value == "ssh"       ? TransportKind::kSsh
                         : value == "openssh" ? TransportKind::kOpenSsh
                         : value == "join"    ? TransportKind::kJoin
                         : value == "slurm"   ? TransportKind::kSlurm
                         : value == "pdsh"    ? TransportKind::kPdsh
                         : value == "openmpi" ? TransportKind::kOpenMpi
                                              : TransportKind::kLocal;
    } else if (name == "hosts") {
        hosts = split(value, ',');
    } else if (name == "workers") {
        workers = number;
    } else if (name == "grace_ms") {
        spec.grace = std::chrono::milliseconds(number);
    } else if (name == "restarts") {
        spec.max_restarts = number;
    } else if (name == "fanout") {
        spec.fanout = static_cast<size_t>(number);
    } else if (name == "output") {
        spec.output_directory = value;
    } else if (name == "listen") {
        spec.listen = value;
        spec.token = take_token_variable();
    } else if (name == "connect_ms") {
        spec.connect_max = std::chrono::milliseconds(number);
    } else if (name == "ssh_config") {
        spec.ssh_config_path = value;
    } else if (name == "cwd") {
        spec.working_directory = value;
    } else if (name == "files") {
        spec.required_files = split(value, ',');
    } else {
        fail(ExitCode::kUsage, "unknown word {}", word);
    }
}

JobSpec parse(int argc, char** argv) {
    JobSpec spec;
    spec.job_id = "probe-" + std::to_string(::getpid());
    spec.target = "probe";
    spec.working_directory = "/";
    std::vector<std::string> hosts = {"localhost"};
    int workers = 1;
    int i = 1;
    for (; i < argc && std::string(argv[i]) != "--"; ++i) apply(spec, hosts, workers, argv[i]);
    const std::vector<std::string> command(argv + std::min(i + 1, argc), argv + argc);
    spec.environment.inherit_all = spec.transport == TransportKind::kLocal;
    spec.world_size = workers * static_cast<int>(hosts.size());
    for (size_t node = 0; node < hosts.size(); ++node) {
        PlannedNode planned;
        planned.name = hosts[node];
        for (int local = 0; local < workers; ++local) {
            WorkerEnvironment environment;
            environment.rank = static_cast<int>(node) * workers + local;
            environment.world_size = spec.world_size;
            environment.local_rank = local;
            environment.local_world_size = workers;
            environment.node_rank = static_cast<int>(node);
            environment.node_sizes.assign(hosts.size(), workers);
            environment.job_id = spec.job_id;
            planned.workers.push_back({environment, command});
        }
        spec.nodes.push_back(planned);
    }
    return spec;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const std::vector<std::string> words(argv + 1, argv + argc);
        if (!words.empty() && words[0] == "agent") {
            return run_agent_command(std::span(words).subspan(1));
        }
        if (!words.empty() && words[0] == "relay") {
            return run_relay(0, 1, LauncherLease::over_stdio(words.back() == "--same-machine"));
        }
        return run_job(parse(argc, argv));
    } catch (const Error& error) {
        const std::string line = std::string("launch_probe: ") + error.what() + "\n";
        static_cast<void>(write_full(2, line));
        return static_cast<int>(error.code());
    }
}

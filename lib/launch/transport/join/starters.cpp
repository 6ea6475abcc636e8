// The programs that start all agents of a job. Inside a Slurm allocation one srun starts one agent
// per node, and the agents call back over TCP: srun itself carries no job data, so that neither its
// buffering nor its end affects the agents' messages. One mpirun of Open MPI starts the agents with
// the method available on this cluster, ssh or the scheduler that it was built for; it carries the
// token in its messages, never in an argument. pdsh gives a command no input and mixes the
// commands' outputs, so its agents call back over a Unix socket that ssh forwards. The user's id
// protects this socket at both ends, and ssh protects it between them; no argument is secret, since
// the socket's name is not. In a job without such a program, agents connect by themselves, except
// for this machine's agent with `dslaunch --no_ssh --node_rank 0`.
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "base/error.h"
#include "base/text.h"
#include "launch/hosts/slurm_allocation.h"
#include "launch/machine/held_name.h"
#include "launch/plan/join_token.h"
#include "launch/process/spawn.h"
#include "launch/process/stdin_for_starter.h"
#include "launch/transport/join/transport_join.h"
#include "launch/transport/ssh_options_file.h"

namespace dslaunch::launch {
namespace {

// Variables that salloc, sbatch or an outer srun set for their own tasks. Our srun would take them
// as its own options, but the agents' step must have one task per node, with all resources that the
// job has there.
constexpr std::string_view kSteersSrun[] = {
    "SLURM_NTASKS",     "SLURM_NPROCS",   "SLURM_CPUS_PER_", "SLURM_CPU_BIND",
    "SLURM_GPUS_PER",   "SLURM_GPU_BIND", "SLURM_MEM_PER_",  "SLURM_MEM_BIND",
    "SLURM_TRES_PER",   "SLURM_DISTRIB",  "SLURM_HINT",      "SLURM_THREADS",
    "SLURM_STDIN",      "SLURM_STDOUT",   "SLURM_STDERR",    "SLURM_LABELIO",
    "SLURM_WAIT",       "SLURM_KILL_BAD", "SLURM_MPI_TYPE",  "SLURM_EXCLUSIVE",
    "SLURM_EXACT",      "SLURM_WHOLE",    "SLURM_EXPORT_",   "SLURM_STEP_GRES",
    "SLURM_ARBITRARY",  "SLURM_MULTI_",   "SLURM_OPEN_MODE", "SLURM_TIMELIMIT",
    "SLURM_NO_KILL",    "SLURM_RELATIVE", "SLURM_NODELIST",  "SLURM_NNODES",
    "SLURM_UNBUFFERED", "SRUN_"};

void erase_beginning_with(std::span<const std::string_view> prefixes, EnvironmentList& list) {
    std::erase_if(list, [&](const auto& variable) {
        return std::ranges::any_of(
            prefixes, [&](std::string_view prefix) { return variable.first.starts_with(prefix); });
    });
}

// Returns an error text if STATUS shows that PROGRAM is not installed here, and an empty string
// otherwise. The text advises to use the built-in ssh instead.
std::string absence_text(int status, const char* program, const char* package) {
    constexpr int kNotStarted = 127;
    if (status != kNotStarted) return "";
    return fmt::format(
        "{} cannot be started here: install {}, or leave out --launcher {} to use the built-in ssh",
        program, package, std::string_view(program) == "mpirun" ? "openmpi" : program);
}

class SlurmStarter final : public AgentStarter {
  public:
    explicit SlurmStarter(const JobSpec& spec)
        : launcher_path_(launcher_path()),
          arguments_(spec.launcher_args),
          held_name_(spec.held_name),
          stdin_(spec.target_kind != TargetKind::kModel) {}

    std::string name() const override { return "srun"; }
    int own_stdin() const override { return stdin_.fd(); }
    std::vector<std::string> command(const std::vector<HostAddress>& hosts,
                                     const std::string& endpoint) const override {
        std::vector<std::string> names;
        for (const HostAddress& host : hosts) names.push_back(host.name);
        std::vector<std::string> words = {"srun",
                                          fmt::format("--nodes={}", hosts.size()),
                                          fmt::format("--ntasks={}", hosts.size()),
                                          "--ntasks-per-node=1",
                                          "--nodelist=" + join(names, ","),
                                          "--overlap",
                                          "--export=ALL",
                                          input_option(names),
                                          "--mpi=none",
                                          "--cpu-bind=none",
                                          "--mem=0",
                                          "--wait=0",
                                          "--kill-on-bad-exit=0",
                                          "--chdir=/",
                                          "--job-name=dslaunch-agents"};
        words.insert(words.end(), arguments_.begin(), arguments_.end());
        words.insert(words.end(), {launcher_path_, "agent", "--join", endpoint, "--node-name-from",
                                   "SLURMD_NODENAME", "--connect-timeout", "20"});
        add_stdin_words(words, stdin_);
        return words;
    }
    void prepare_environment(EnvironmentList& environment,
                             const std::string& token) const override {
        erase_beginning_with(kSteersSrun, environment);
        set_variable(environment, kTokenVariable, token);
        if (!held_name_.empty()) set_variable(environment, kHeldNameVariable, held_name_);
    }
    std::optional<size_t> host_of(const std::string& line,
                                  const std::vector<HostAddress>& hosts) const override {
        static constexpr std::string_view kDaemon = "slurmstepd-";
        return host_named_in(line.starts_with(kDaemon) ? line.substr(kDaemon.size()) : line, hosts);
    }
    bool says_host_is_lost(const std::string& line) const override {
        return line.find("Node failure on") != std::string::npos;
    }

  private:
    // Returns the option that sends stdin only to the task on the first of NAMES, where rank 0
    // runs. srun numbers its tasks in the allocation's order of nodes, which may differ from the
    // order of NAMES.
    [[nodiscard]] std::string input_option(const std::vector<std::string>& names) const {
        if (stdin_.fd() < 0) return "--input=none";
        int before = 0;
        const auto allocation = find_slurm_allocation(own_environment(), /*with_gpus=*/false);
        for (const Host& host : allocation ? allocation->hosts : std::vector<Host>()) {
            if (host.name == names.front()) break;
            before += std::ranges::find(names, host.name) != names.end() ? 1 : 0;
        }
        return fmt::format("--input={}", before);
    }

    std::string launcher_path_;
    std::vector<std::string> arguments_;
    std::string held_name_;
    StdinForStarter stdin_;
};

// Variables that an outer mpirun set for its own processes, given by the beginnings of their names.
// An inner mpirun would take them as its own.
constexpr std::string_view kSteersMpirun[] = {"OMPI_COMM_",    "OMPI_MCA_orte_", "OMPI_MCA_ess",
                                              "OMPI_UNIVERSE", "OMPI_APP_",      "OMPI_FIRST_RANKS",
                                              "OMPI_NUM_APP",  "OMPI_FILE_",     "OMPI_ARGV",
                                              "OMPI_COMMAND",  "PMIX_",          "PRTE_",
                                              "ORTE_"};

class OpenMpiStarter final : public AgentStarter {
  public:
    explicit OpenMpiStarter(const JobSpec& spec)
        : launcher_path_(launcher_path()),
          ssh_config_path_(spec.ssh_config_path),
          arguments_(spec.launcher_args),
          stdin_(spec.target_kind != TargetKind::kModel) {}

    std::string name() const override { return "mpirun"; }
    int own_stdin() const override { return stdin_.fd(); }

    std::vector<std::string> command(const std::vector<HostAddress>& hosts,
                                     const std::string& endpoint) const override {
        options_ =
            std::make_unique<SshOptionsFile>(hosts, ssh_config_path_, SshOptionsFile::Forward{});
        std::vector<std::string> words = {"mpirun"};
        if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
        // Each host is reached from this machine, since the options file exists only here. Each
        // host is called by its whole name.
        words.insert(words.end(),
                     {"--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "orte_keep_fqdn_hostnames",
                      "1", "--mca", "plm_rsh_args", "-F " + options_->path()});
        words.insert(words.end(), arguments_.begin(), arguments_.end());
        // One app context per host gives each agent its name, independently of mpirun's order.
        for (size_t i = 0; i < hosts.size(); ++i) {
            if (i > 0) words.emplace_back(":");
            words.insert(words.end(),
                         {"-np", "1", "--host", hosts[i].name, "--bind-to", "none", "-x",
                          kTokenVariable, launcher_path_, "agent", "--join", endpoint,
                          "--node-name", hosts[i].name, "--connect-timeout", "20"});
            // mpirun passes its stdin to its first process.
            if (i == 0) add_stdin_words(words, stdin_);
        }
        return words;
    }
    void prepare_environment(EnvironmentList& environment,
                             const std::string& token) const override {
        erase_beginning_with(kSteersMpirun, environment);
        set_variable(environment, kTokenVariable, token);
        set_variable(environment, "SSH_ASKPASS_REQUIRE", "never");
    }
    // Reads a line; skips mpirun's indented boxes of advice, which name hosts that are not to
    // blame.
    StarterLine read_line(const std::string& line,
                          const std::vector<HostAddress>& hosts) const override {
        if (line.starts_with(' ')) return {std::nullopt, line};
        return AgentStarter::read_line(line, hosts);
    }
    bool says_host_is_lost(const std::string&) const override { return false; }
    std::string describe_end(int status, const std::deque<std::string>& lines) const override {
        if (const auto text = absence_text(status, "mpirun", "Open MPI (package openmpi-bin)");
            !text.empty())
            return text;
        for (const std::string& line : lines) {
            if (line.find("reported to the developers") == std::string::npos) continue;
            return fmt::format("mpirun ended with {}, because it cannot reach every host", status);
        }
        return AgentStarter::describe_end(status, lines);
    }

  private:
    std::string launcher_path_;
    std::string ssh_config_path_;
    std::vector<std::string> arguments_;
    StdinForStarter stdin_;
    mutable std::unique_ptr<SshOptionsFile> options_;  // made when the hosts are known
};

constexpr const char* kAppendVariable = "PDSH_SSH_ARGS_APPEND";
constexpr std::string_view kUnixPrefix = "unix:";
constexpr std::string_view kExitMark = "ssh exited with exit code ";
constexpr size_t kFanOutMax = 1024;
// The folder of the socket on the other hosts: it exists on every system and everybody may write to
// it.
constexpr std::string_view kSocketFolder = "/tmp";

std::string random_name() {
    unsigned char bytes[16] = {};
    if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
        fail(ExitCode::kSetup, "cannot get random bytes: {}", errno_text(errno));
    }
    return fmt::format("{}/dslaunch-{}", kSocketFolder, hex_text(std::as_bytes(std::span(bytes))));
}

class PdshStarter final : public AgentStarter {
  public:
    explicit PdshStarter(const JobSpec& spec)
        : launcher_path_(launcher_path()),
          ssh_config_path_(spec.ssh_config_path),
          arguments_(spec.launcher_args),
          socket_there_(random_name()) {}

    std::string name() const override { return "pdsh"; }

    std::vector<std::string> command(const std::vector<HostAddress>& hosts,
                                     const std::string& endpoint) const override {
        options_ = std::make_unique<SshOptionsFile>(
            hosts, ssh_config_path_,
            SshOptionsFile::Forward{socket_there_, endpoint.substr(kUnixPrefix.size())});
        std::vector<std::string> names;
        for (const HostAddress& host : hosts) names.push_back(host.name);
        std::vector<std::string> words = {
            "pdsh", "-S", "-R", "ssh", "-f", std::to_string(std::min(names.size(), kFanOutMax))};
        words.insert(words.end(), arguments_.begin(), arguments_.end());
        // pdsh replaces %h by the host's name and %n by its index in the list. The agent removes
        // its socket; if a host has no dslaunch, the shell removes the socket.
        words.insert(words.end(),
                     {"-w", join(names, ","),
                      fmt::format("[ -x {0} ] || rm -f {1}-%n; exec {0} agent --join unix:{1}-%n "
                                  "--remove-socket --node-name %h --connect-timeout 20",
                                  launcher_path_, socket_there_)});
        return words;
    }

    void prepare_environment(EnvironmentList& environment, const std::string&) const override {
        const std::string* own = find_variable(environment, kAppendVariable);
        const std::string before = own == nullptr || own->empty() ? "" : *own + " ";
        set_variable(environment, kAppendVariable, before + "-F " + options_->path());
        set_variable(environment, "SSH_ASKPASS_REQUIRE", "never");
    }

    StarterLine read_line(const std::string& line,
                          const std::vector<HostAddress>& hosts) const override {
        // A line is "te1: output of te1", or "pdsh@here: te1: pdsh's message about te1".
        std::string text = line;
        if (text.starts_with("pdsh@")) {
            const size_t end = text.find(": ");
            text.erase(0, end == std::string::npos ? text.size() : end + 2);
        }
        const size_t colon = text.find(": ");
        if (colon == std::string::npos) return {std::nullopt, text};
        return {find_host(text.substr(0, colon), hosts), text.substr(colon + 2)};
    }
    bool says_host_is_lost(const std::string& line) const override {
        return line.starts_with(kExitMark);
    }
    int exit_status_in(const std::string& line) const override {
        constexpr int kSshFailed = 255;
        if (!line.starts_with(kExitMark)) return -1;
        const auto status = parse_int(trim(std::string_view(line).substr(kExitMark.size())));
        return status && *status != kSshFailed ? static_cast<int>(*status) : -1;
    }
    std::string describe_end(int status, const std::deque<std::string>& lines) const override {
        const std::string text = absence_text(status, "pdsh", "it (package pdsh)");
        return text.empty() ? AgentStarter::describe_end(status, lines) : text;
    }

  private:
    // Finds the host for a label; pdsh leaves out a domain that all hosts share.
    static std::optional<size_t> find_host(const std::string& label,
                                           const std::vector<HostAddress>& hosts) {
        std::optional<size_t> found;
        for (size_t i = 0; i < hosts.size(); ++i) {
            if (hosts[i].name == label) return i;
            if (!hosts[i].name.starts_with(label + ".")) continue;
            if (found) return std::nullopt;
            found = i;
        }
        return found;
    }

    std::string launcher_path_;
    std::string ssh_config_path_;
    std::vector<std::string> arguments_;
    std::string socket_there_;
    mutable std::unique_ptr<SshOptionsFile> options_;  // made when the endpoint is known
};

class SelfStarter final : public AgentStarter {
  public:
    explicit SelfStarter(bool hands_stdin)
        : stdin_(hands_stdin ? stdin_for_worker() : UniqueFd()) {}

    std::string name() const override { return "this machine's agent"; }
    std::vector<std::string> command(const std::vector<HostAddress>&,
                                     const std::string& endpoint) const override {
        return {"/proc/self/exe",    "agent", "--join", endpoint, "--node", "0",
                "--connect-timeout", "10"};
    }
    void prepare_environment(EnvironmentList& environment,
                             const std::string& token) const override {
        set_variable(environment, kTokenVariable, token);
    }
    bool starts(size_t host) const override { return host == 0; }
    bool says_host_is_lost(const std::string&) const override { return false; }
    int worker_stdin() const override { return stdin_.get(); }

  private:
    UniqueFd stdin_;
};

}  // namespace

std::unique_ptr<Transport> make_slurm_transport(const JobSpec& spec) {
    return make_join_transport(called_back(spec, std::make_unique<SlurmStarter>(spec)));
}

std::unique_ptr<Transport> make_openmpi_transport(const JobSpec& spec) {
    return make_join_transport(called_back(spec, std::make_unique<OpenMpiStarter>(spec)));
}

std::unique_ptr<Transport> make_pdsh_transport(const JobSpec& spec) {
    const EnvironmentList environment = own_environment();
    const std::string* own = find_variable(environment, kAppendVariable);
    for (const std::string& word : split(own == nullptr ? "" : *own, ' ')) {
        if (!word.starts_with("-F")) continue;
        fail(ExitCode::kUsage,
             "{} contains -F; give that file with --ssh-config (or DSLAUNCH_SSH_CONFIG) instead",
             kAppendVariable);
    }
    JoinSettings settings;  // a Unix socket in a private folder, without token
    settings.join_max = spec.connect_max;
    settings.starter = std::make_unique<PdshStarter>(spec);
    return make_join_transport(std::move(settings));
}

std::unique_ptr<Transport> make_joining_transport(const JobSpec& spec) {
    JoinSettings settings;
    settings.endpoint = parse_join_endpoint(spec.listen);
    settings.token = spec.token;
    settings.join_max = spec.connect_max;
    settings.announce = true;
    if (spec.serves_node_0)
        settings.starter = std::make_unique<SelfStarter>(spec.target_kind != TargetKind::kModel);
    return make_join_transport(std::move(settings));
}

}  // namespace dslaunch::launch

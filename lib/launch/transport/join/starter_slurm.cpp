// Inside a Slurm allocation: one srun starts one agent per node, and they call back over TCP. srun
// itself carries no job data, so that neither its buffering nor its end touches what the agents
// say.
#include <fmt/format.h>

#include <algorithm>

#include "launch/hosts/slurm_allocation.h"
#include "launch/machine/held_name.h"
#include "launch/plan/join_token.h"
#include "launch/process/spawn.h"
#include "launch/process/worker_stdin.h"
#include "launch/transport/join/transport_join.h"

namespace dslaunch::launch {
namespace {

// True for variables that salloc, sbatch or an outer srun left for their own tasks, and that srun
// would take as its options: the agent's step is one task per node with everything that the job has
// there.
bool steers_srun(const std::string& name) {
    static constexpr std::string_view kPrefixes[] = {
        "SLURM_NTASKS",     "SLURM_NPROCS",   "SLURM_CPUS_PER_", "SLURM_CPU_BIND",
        "SLURM_GPUS_PER",   "SLURM_GPU_BIND", "SLURM_MEM_PER_",  "SLURM_MEM_BIND",
        "SLURM_TRES_PER",   "SLURM_DISTRIB",  "SLURM_HINT",      "SLURM_THREADS",
        "SLURM_STDIN",      "SLURM_STDOUT",   "SLURM_STDERR",    "SLURM_LABELIO",
        "SLURM_WAIT",       "SLURM_KILL_BAD", "SLURM_MPI_TYPE",  "SLURM_EXCLUSIVE",
        "SLURM_EXACT",      "SLURM_WHOLE",    "SLURM_EXPORT_",   "SLURM_STEP_GRES",
        "SLURM_ARBITRARY",  "SLURM_MULTI_",   "SLURM_OPEN_MODE", "SLURM_TIMELIMIT",
        "SLURM_NO_KILL",    "SLURM_RELATIVE", "SLURM_NODELIST",  "SLURM_NNODES",
        "SLURM_UNBUFFERED", "SRUN_"};
    for (const std::string_view prefix : kPrefixes) {
        if (name.starts_with(prefix)) return true;
    }
    return false;
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
        std::string list = names.front();
        for (size_t i = 1; i < names.size(); ++i) list += "," + names[i];
        std::vector<std::string> words = {"srun",
                                          fmt::format("--nodes={}", hosts.size()),
                                          fmt::format("--ntasks={}", hosts.size()),
                                          "--ntasks-per-node=1",
                                          "--nodelist=" + list,
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
        std::erase_if(environment,
                      [](const auto& variable) { return steers_srun(variable.first); });
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
    // srun numbers its tasks in the allocation's order of nodes; the first of NAMES has rank 0.
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

}  // namespace

std::unique_ptr<Transport> make_slurm_transport(const JobSpec& spec) {
    return make_join_transport(called_back(spec, std::make_unique<SlurmStarter>(spec)));
}

}  // namespace dslaunch::launch

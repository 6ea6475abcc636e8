// One mpirun of Open MPI starts the agents, as it can on this cluster: through ssh, or through the
// scheduler that it was built for. The agents call back over TCP; mpirun carries the token in its
// messages, never in an argument.
#include <fmt/format.h>
#include <unistd.h>

#include "base/text.h"
#include "launch/plan/join_token.h"
#include "launch/process/spawn.h"
#include "launch/process/worker_stdin.h"
#include "launch/transport/join/transport_join.h"
#include "launch/transport/ssh_options_file.h"

namespace dslaunch::launch {
namespace {

// True for variables that an outer mpirun left for its own processes, and that an inner one would
// take for itself.
bool steers_mpirun(const std::string& name) {
    for (const char* prefix : {"OMPI_COMM_", "OMPI_MCA_orte_", "OMPI_MCA_ess", "OMPI_UNIVERSE",
                               "OMPI_APP_", "OMPI_FIRST_RANKS", "OMPI_NUM_APP", "OMPI_FILE_",
                               "OMPI_ARGV", "OMPI_COMMAND", "PMIX_", "PRTE_", "ORTE_"}) {
        if (name.starts_with(prefix)) return true;
    }
    return false;
}

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
        // Each host is reached from here: the options file is on no other machine.
        // And is called by its whole name.
        words.insert(words.end(),
                     {"--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "orte_keep_fqdn_hostnames",
                      "1", "--mca", "plm_rsh_args", "-F " + options_->path()});
        words.insert(words.end(), arguments_.begin(), arguments_.end());
        // One context per host, so that each agent knows its name whatever order mpirun prefers.
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
        std::erase_if(environment,
                      [](const auto& variable) { return steers_mpirun(variable.first); });
        set_variable(environment, kTokenVariable, token);
        set_variable(environment, "SSH_ASKPASS_REQUIRE", "never");
    }
    // mpirun's own boxes of advice, in indented lines, name hosts that are not to blame.
    StarterLine read_line(const std::string& line,
                          const std::vector<HostAddress>& hosts) const override {
        if (line.starts_with(' ')) return {std::nullopt, line};
        return AgentStarter::read_line(line, hosts);
    }
    bool says_host_is_lost(const std::string&) const override { return false; }
    std::string describe_end(int status, const std::deque<std::string>& lines) const override {
        constexpr int kNotStarted = 127;
        if (status == kNotStarted) {
            return "mpirun cannot be started here: install Open MPI (package openmpi-bin), or "
                   "leave --launcher openmpi out: dslaunch brings its own ssh";
        }
        for (const std::string& line : lines) {
            if (line.find("reported to the developers") == std::string::npos) continue;
            return fmt::format("mpirun ended with {} since it does not reach every host", status);
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

}  // namespace

std::unique_ptr<Transport> make_openmpi_transport(const JobSpec& spec) {
    return make_join_transport(called_back(spec, std::make_unique<OpenMpiStarter>(spec)));
}

}  // namespace dslaunch::launch

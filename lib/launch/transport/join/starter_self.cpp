// Agents that come by themselves; with `dslaunch --no_ssh --node_rank 0` that of this machine is a
// child of the launcher and joins like the others.
#include "launch/plan/join_token.h"
#include "launch/process/spawn.h"
#include "launch/process/worker_stdin.h"
#include "launch/transport/join/transport_join.h"

namespace dslaunch::launch {
namespace {

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

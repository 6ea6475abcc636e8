// The options of `dslaunch plan`: their declaration, and the checks that need no model. Data path:
// command line -> [here] -> the parts of the plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text/command_line.h"
#include "job/setup/job_tensor.h"
#include "job/setup/set_up_job.h"
#include "worker/plan/plan_hosts.h"
#include "worker/plan/plan_reports.h"

namespace dslaunch::worker {

// The values of the config that options of the command line replace.
struct GivenConfig {
    std::string data;  // path; empty: the config's value
    std::vector<std::string> op_libraries;
    int64_t context = 0;  // tokens of a sample; 0: the config's value
    std::string device;   // dslaunch.device; empty: the config's value
};

// The options of `dslaunch plan`.
struct PlanArguments {
    job::JobArguments job;
    PlanHosts hosts;
    // The number of the job's ranks on each host. If a mesh is planned, only the ranks of its data
    // axis count, otherwise all ranks of HOSTS.
    std::vector<int> node_sizes;
    GivenConfig given;
    std::string compare;  // "shard", "cache"; empty: nothing
    bool forecast = false;
    bool tune = false;  // list the configs that `dslaunch tune` considers
    bool instructions = false;
    bool learning_rate = false;
    int beside_ranks = 0;  // if not 0, this process only measures, while another process runs, as a
                           // rank of a host with this number of ranks
    job::TensorRequest tensor;
    int sequence = 0;                       // ranks that share positions; 0: not given
    std::vector<std::string> tensor_rules;  // PATTERN=RULE
    MeshArguments mesh;
    bool json = false;
};

// Returns the place of RANK among the ranks of the planned job.
[[nodiscard]] runtime::Topology place_of(const PlanArguments& arguments, int rank);

// Declares all options. ARGUMENTS must outlive the parsing.
void add_plan_options(CommandLine& app, PlanArguments& arguments);

// Called after parsing: finds the model and the hosts, and turns options into values of the config.
// Throws Error{kUsage} for options that make no sense together, and what find_plan_hosts() and
// storage::model_at() throw.
void settle_plan_options(const CommandLine& app, PlanArguments& arguments);

}  // namespace dslaunch::worker

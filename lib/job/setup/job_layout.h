// Stages, layout, partition and step plans of a job, from its config and the model's measures.
// Data path: job setup, stages, shares -> [here] -> step plans of any of the job's ranks.
#pragma once

#include <string>
#include <vector>

#include "job/setup/job_setup.h"

namespace dslaunch::runtime {
class Collectives;
}  // namespace dslaunch::runtime

namespace dslaunch::job {

// Stages, layout, partition and options from what SETUP has: the config, the model's measures, and
// whether it is for a GPU. Throws Error{kConfig} where the stages that the config asks for cannot
// be.
void lay_out_job(JobSetup& setup, const runtime::Topology& place);

// The same job as the rank at PLACE has it, with its plan: without model and data.
[[nodiscard]] JobSetup seen_from(const JobSetup& setup, const runtime::Topology& place);

// What of the config forbids a plan for the model that SETUP has laid out, as an error's message;
// empty: nothing.
[[nodiscard]] std::string why_no_plan(const JobSetup& setup);

// Why shard auto has chosen what it has, a line; empty: the config says how.
[[nodiscard]] std::string shard_text(const JobSetup& setup);

// The step plan of the rank at PLACE among those of SETUP's stage, and those of all of them on its
// host.
[[nodiscard]] plan::StepPlan make_plan(const JobSetup& setup, const runtime::Topology& place);
[[nodiscard]] std::vector<plan::StepPlan> make_host_plans(const JobSetup& setup);

// By all ranks of a stage, in one order of collectives: whether their plans fit together. Throws
// Error{kDiverged}: model, config or dsworker differ between the hosts.
void compare_plans(runtime::Collectives& collectives, const plan::StepPlan& plan);

// The plans of all ranks of SETUP's host, where PLACE is, checked together, in a pipeline those of
// its stage and of the stages that it is joined to; aborts on what is wrong (a bug of ours).
void check_host_plans(const JobSetup& setup, const runtime::Topology& place);

}  // namespace dslaunch::job

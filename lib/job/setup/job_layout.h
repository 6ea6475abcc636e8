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

// Returns the buckets of CONFIG's job at ZeRO STAGE, without what a pipeline adds.
[[nodiscard]] plan::FlatLayoutOptions layout_options(const config::RunConfig& config,
                                                     int64_t stage);

// Fills in SETUP's stages, layout, partition and options from its config, model info and on_gpu.
// Throws Error{kConfig} if the stages that the config asks for cannot be made.
void lay_out_job(JobSetup& setup, const runtime::Topology& place);

// Returns SETUP's job as the rank at PLACE has it, with that rank's plan, without model and data.
[[nodiscard]] JobSetup seen_from(const JobSetup& setup, const runtime::Topology& place);

// Returns the reason why the config allows no plan for the model that SETUP has laid out, as an
// error's message; empty: none.
[[nodiscard]] std::string why_no_plan(const JobSetup& setup);

// Returns the reason for the choice of shard auto, a line; empty: the config names the shard.
[[nodiscard]] std::string shard_text(const JobSetup& setup);

// Returns the step plan of the rank at PLACE among the ranks of SETUP's stage, of that KIND, and
// the step plans of all ranks of that stage on its host.
[[nodiscard]] plan::StepPlan make_plan(const JobSetup& setup, const runtime::Topology& place,
                                       const plan::StepKind& kind = {});
[[nodiscard]] std::vector<plan::StepPlan> make_host_plans(const JobSetup& setup,
                                                          const plan::StepKind& kind = {});

// Called by all ranks of a stage, in one order of collectives: checks that their plans fit
// together. Throws Error{kDiverged}: model, config or dsworker differ between the hosts.
void compare_plans(runtime::Collectives& collectives, const plan::StepPlan& plan);

// Checks together the plans of all ranks of SETUP's host, where PLACE is; in a pipeline the plans
// of SETUP's stage and of the stages that it is joined to. Aborts if they do not fit (a bug of
// ours).
void check_host_plans(const JobSetup& setup, const runtime::Topology& place);

}  // namespace dslaunch::job

// The stages, layout, partition and step plans of a job, from its config and the measurements of
// the model. Data path: job setup, stages, shares -> [here] -> step plans of any of the job's
// ranks.
#pragma once

#include <string>
#include <vector>

#include "job/setup/job_setup.h"

namespace dslaunch::runtime {
class Collectives;
}  // namespace dslaunch::runtime

namespace dslaunch::job {

// Returns the options for the buckets of CONFIG's job at ZeRO STAGE. The caller adds the options
// that a pipeline needs.
[[nodiscard]] plan::FlatLayoutOptions layout_options(const config::RunConfig& config,
                                                     int64_t stage);

// Fills in SETUP's stages, layout, partition and options from its config, model info and on_gpu.
// Throws Error{kConfig} if the stages that the config requests are not possible.
void lay_out_job(JobSetup& setup, const runtime::Topology& place);

// Returns the setup of SETUP's job for the rank at PLACE, with the plan of this rank. The result
// has no model and no data.
[[nodiscard]] JobSetup seen_from(const JobSetup& setup, const runtime::Topology& place);

// Returns the reason why the config allows no plan for the model that SETUP has laid out, as an
// error message; empty if it allows a plan.
[[nodiscard]] std::string why_no_plan(const JobSetup& setup);

// Returns a line that says why `shard: auto` has chosen its kind of shard; empty if the config
// names a kind.
[[nodiscard]] std::string shard_text(const JobSetup& setup);

// Returns the step plan of KIND for the rank at PLACE among the ranks of SETUP's stage.
// make_host_plans returns the step plans of all ranks of that stage on the same host.
[[nodiscard]] plan::StepPlan make_plan(const JobSetup& setup, const runtime::Topology& place,
                                       const plan::StepKind& kind = {});
[[nodiscard]] std::vector<plan::StepPlan> make_host_plans(const JobSetup& setup,
                                                          const plan::StepKind& kind = {});

// Called by all ranks of a stage, in the same order relative to other collectives. Checks that
// their plans fit together. Throws Error{kDiverged} if they do not, because model, config or
// dsworker differ between the hosts.
void compare_plans(runtime::Collectives& collectives, const plan::StepPlan& plan);

// Checks that the plans of all ranks on this host fit together. PLACE is the place of SETUP's rank.
// In a pipeline, checks the plans of all stages with which this rank is connected. Aborts if the
// plans do not fit, since this can only be a bug.
void check_host_plans(const JobSetup& setup, const runtime::Topology& place);

}  // namespace dslaunch::job

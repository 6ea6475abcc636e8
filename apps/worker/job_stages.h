// What a job's pipeline makes of it: who is in which stage, which segments each has, and which
// parameters several train. Where it stands: config, model info -> [here] -> job setup.
#pragma once

#include <string>
#include <vector>

#include "worker/job_setup.h"

namespace dslaunch {

// Of the rank at PLACE; without a pipeline the place itself.
[[nodiscard]] PipelinePlace place_in_stages(const RunConfig& config, const Topology& place);

// Throws Error{kConfig} or {kInput} for what no pipeline can be made of.
void check_pipeline(const JobSetup& setup);

// Fills in SETUP's stages and ties, from its place, plan options and model info. Every rank comes
// to the same: what segments cost is counted, not timed. Throws Error{kConfig} where the stages
// that the config asks for cannot be.
void choose_segments(JobSetup& setup);

// What SETUP's stage runs. REQUIRES: a pipeline.
[[nodiscard]] StageWork work_of_stage(const JobSetup& setup);

// Of each of the model's parameters, and of each of its buffers, the stages that read it,
// ascending.
[[nodiscard]] std::vector<std::vector<int>> stages_of_parameters(const JobSetup& setup);
[[nodiscard]] std::vector<std::vector<int>> stages_of_buffers(const JobSetup& setup);

// Parameters of SETUP's stage that an earlier one reads too, trained or not.
[[nodiscard]] std::vector<int> read_earlier(const JobSetup& setup);

// Throws Error{kConfig} where stages that train one parameter lie otherwise on their hosts: sums in
// another order would let their copies part. PLACE: of SETUP's rank in the job.
void check_ties(const JobSetup& setup, const Topology& place);

// What all ranks of a pipeline must agree on, as one word.
[[nodiscard]] std::string agreement(const JobSetup& setup);

// The stages of a pipeline, a line each.
[[nodiscard]] std::string stages_text(const JobSetup& setup);

}  // namespace dslaunch

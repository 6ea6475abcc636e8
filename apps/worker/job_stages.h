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

// Of each of the model's parameters the stages that read it, ascending; of each of its buffers the
// first stage that does, -1: none.
[[nodiscard]] std::vector<std::vector<int>> stages_of_parameters(const JobSetup& setup);
[[nodiscard]] std::vector<int> stage_of_buffers(const JobSetup& setup);

// Of each bucket of SETUP's stage the stages that its tied parameter has, empty for others; and of
// its tied parameters those that an earlier stage has.
[[nodiscard]] std::vector<std::vector<int>> stages_of_buckets(const JobSetup& setup);
[[nodiscard]] std::vector<int> counted_elsewhere(const JobSetup& setup);

// The stages of a pipeline, a line each.
[[nodiscard]] std::string stages_text(const JobSetup& setup);

}  // namespace dslaunch

// What a job's pipeline makes of it: who is in which stage, which segments each has, and which
// parameters several train. Data path: config, model info -> [here] -> job setup.
#pragma once

#include <string>
#include <vector>

#include "job/setup/job_setup.h"

namespace dslaunch::job {

// Of the rank at PLACE; without a pipeline the place itself.
[[nodiscard]] runtime::PipelinePlace place_in_stages(const config::RunConfig& config,
                                                     const runtime::Topology& place);

// Throws Error{kConfig} or {kInput} for what no pipeline can be made of.
void check_pipeline(const JobSetup& setup);

// Fills in SETUP's parts, schedule and ties, from its place, plan options and model info. Every
// rank comes to the same: what segments cost is counted, not timed. Throws Error{kConfig} where the
// stages that the config asks for cannot be.
void choose_segments(JobSetup& setup);

// What SETUP's stage runs. REQUIRES: a pipeline.
[[nodiscard]] plan::StageWork work_of_stage(const JobSetup& setup);

// JobSetup::far_ranks. PLACE: of SETUP's rank in the job.
[[nodiscard]] std::vector<int> far_ranks(const JobSetup& setup, const runtime::Topology& place);

// Fills in what PLAN, of a rank of SETUP's stage, sends to stages on other hosts: live values,
// their gradients, those of tied parameters.
void count_sent_by_stage(const JobSetup& setup, plan::StepPlan& plan);

// How many of the groups that the config has the model recomputed in a part of SETUP's stage has
// a share of, at most. REQUIRES: a pipeline.
[[nodiscard]] int64_t recompute_groups_of_stage(const JobSetup& setup);

// On the CPU: runs BATCH through the model where stages share buffers. Throws Error{kConfig} where
// one of them is changed by a stage, for the other's copy would not be.
void check_shared_buffers(const JobSetup& setup, const std::vector<c10::IValue>& batch);
// Of each part of the model, the stage that has it.
[[nodiscard]] std::vector<int> stage_of_parts(const JobSetup& setup);

// Of each of the model's parameters, and of each of its buffers, the stages that read it,
// ascending.
[[nodiscard]] std::vector<std::vector<int>> stages_of_parameters(const JobSetup& setup);
[[nodiscard]] std::vector<std::vector<int>> stages_of_buffers(const JobSetup& setup);

// By buffer, whether SETUP's stage is the first that reads it, or the first where none does; of the
// ranks that share layers with its rank only the first has any.
[[nodiscard]] std::vector<char> buffers_first_read(const JobSetup& setup);

// Parameters of SETUP's stage that an earlier one reads too, trained or not.
[[nodiscard]] std::vector<int> read_earlier(const JobSetup& setup);

// Throws Error{kConfig} where stages that train one parameter lie otherwise on their hosts: sums in
// another order would let their copies part. PLACE: of SETUP's rank in the job.
void check_ties(const JobSetup& setup, const runtime::Topology& place);

// What all ranks of a job whose plans differ must agree on, as one word.
[[nodiscard]] std::string agreement(const JobSetup& setup);

// The stages of a pipeline, a line each.
[[nodiscard]] std::string stages_text(const JobSetup& setup);

}  // namespace dslaunch::job

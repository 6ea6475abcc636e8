// The division of a job by its pipeline: the ranks of each stage, the segments of each stage, and
// the parameters that several stages train. Data path: config, model info -> [here] -> job setup.
#pragma once

#include <string>
#include <vector>

#include "job/setup/job_setup.h"

namespace dslaunch::job {

// Returns the stage of the rank at PLACE, and its place there; no pipeline has one stage.
[[nodiscard]] runtime::PipelinePlace place_in_stages(const config::RunConfig& config,
                                                     const runtime::Topology& place);

// Throws Error{kConfig} or {kInput} if no pipeline can be made of SETUP's job.
void check_pipeline(const JobSetup& setup);

// Fills in SETUP's parts, schedule and ties, from its place, plan options and model info. Every
// rank comes to the same result: the costs of segments are counted, not timed. Throws
// Error{kConfig} if the stages that the config asks for cannot be made.
void choose_segments(JobSetup& setup);

// Returns the work of SETUP's stage. REQUIRES: a pipeline.
[[nodiscard]] plan::StageWork work_of_stage(const JobSetup& setup);

// Returns the value of JobSetup::far_ranks. PLACE is SETUP's rank's place in the job.
[[nodiscard]] std::vector<int> far_ranks(const JobSetup& setup, const runtime::Topology& place);

// Fills in the bytes that PLAN, of a rank of SETUP's stage, sends to stages on other hosts: live
// values, their gradients, and gradients of tied parameters.
void count_sent_by_stage(const JobSetup& setup, plan::StepPlan& plan);

// Returns the largest number of the model's recompute groups, which the config asks for, that a
// part of SETUP's stage overlaps. REQUIRES: a pipeline.
[[nodiscard]] int64_t recompute_groups_of_stage(const JobSetup& setup);

// Runs BATCH through the model on the CPU if stages share buffers. Throws Error{kConfig} if a stage
// changes a shared buffer, for the other stages' copies would not change.
void check_shared_buffers(const JobSetup& setup, const std::vector<c10::IValue>& batch);
// Returns the stage of each part of the model, by part.
[[nodiscard]] std::vector<int> stage_of_parts(const JobSetup& setup);

// Returns the stages that read each of the model's parameters or buffers, by parameter or buffer;
// stages ascend.
[[nodiscard]] std::vector<std::vector<int>> stages_of_parameters(const JobSetup& setup);
[[nodiscard]] std::vector<std::vector<int>> stages_of_buffers(const JobSetup& setup);

// Returns a mark for each buffer: 1 if SETUP's stage is the first that reads it, or stage 0 if none
// does. Only the first of the ranks that share layers has any 1.
[[nodiscard]] std::vector<char> buffers_first_read(const JobSetup& setup);

// Returns the parameters, trained or not, that a stage before SETUP's reads.
[[nodiscard]] std::vector<int> read_earlier(const JobSetup& setup);

// Throws Error{kConfig} if stages that train one parameter lie differently on their hosts: sums in
// another order would make their copies differ. PLACE is SETUP's rank's place in the job.
void check_ties(const JobSetup& setup, const runtime::Topology& place);

// Everything that all ranks of a job must agree on even if their plans differ, in a word each.
struct Agreement {
    std::string structure;
    std::string sizes;  // of the values between segments
};
[[nodiscard]] Agreement agreement(const JobSetup& setup);

// Returns the stages of a pipeline, one line per stage after a title.
[[nodiscard]] std::string stages_text(const JobSetup& setup);

}  // namespace dslaunch::job

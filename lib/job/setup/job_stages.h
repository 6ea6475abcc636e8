// The division of a job by its pipeline: the ranks of each stage, the segments of each stage, and
// the parameters that several stages train. Data path: config, model info -> [here] -> job setup.
#pragma once

#include <string>
#include <vector>

#include "job/setup/job_setup.h"

namespace dslaunch::job {

// Returns the stage of the rank at PLACE, and the rank's place in the stage. Without a pipeline,
// there is one stage.
[[nodiscard]] runtime::PipelinePlace place_in_stages(const config::RunConfig& config,
                                                     const runtime::Topology& place);

// Throws Error{kConfig} or Error{kInput} if SETUP's job cannot run as a pipeline.
void check_pipeline(const JobSetup& setup);

// Fills in SETUP's parts, schedule and ties, from its place, plan options and model info. Every
// rank gets the same result, since the costs of segments are computed from FLOPs, not measured.
// Throws Error{kConfig} if the stages that the config requests are not possible.
void choose_segments(JobSetup& setup);

// Returns the work of SETUP's stage. REQUIRES: a pipeline.
[[nodiscard]] plan::StageWork work_of_stage(const JobSetup& setup);

// Returns the value for JobSetup::far_ranks. PLACE is the place of SETUP's rank in the job.
[[nodiscard]] std::vector<int> far_ranks(const JobSetup& setup, const runtime::Topology& place);

// Fills in the bytes that PLAN sends to stages on other hosts: live values, their gradients, and
// gradients of tied parameters. PLAN is a plan for SETUP's stage.
void count_sent_by_stage(const JobSetup& setup, plan::StepPlan& plan);

// Returns the largest number of recompute groups that overlap one part of SETUP's stage. The config
// divides the whole model into these groups. REQUIRES: a pipeline.
[[nodiscard]] int64_t recompute_groups_of_stage(const JobSetup& setup);

// Runs BATCH through the model on the CPU if stages share buffers. Throws Error{kConfig} if a stage
// changes a shared buffer, since the copies in other stages would not change.
void check_shared_buffers(const JobSetup& setup, const std::vector<c10::IValue>& batch);
// Returns the stage of each part of the model, by part.
[[nodiscard]] std::vector<int> stage_of_parts(const JobSetup& setup);

// Returns the stages that read each parameter of the model, by parameter, in ascending order.
// stages_of_buffers returns the same for buffers.
[[nodiscard]] std::vector<std::vector<int>> stages_of_parameters(const JobSetup& setup);
[[nodiscard]] std::vector<std::vector<int>> stages_of_buffers(const JobSetup& setup);

// Returns a mark for each buffer: 1 if SETUP's stage is the first stage that reads the buffer, or
// if it is stage 0 and no stage reads the buffer. If ranks share the layers of a stage, only the
// first of these ranks has marks of 1.
[[nodiscard]] std::vector<char> buffers_first_read(const JobSetup& setup);

// Returns the parameters, trained or not, that a stage before SETUP's stage reads.
[[nodiscard]] std::vector<int> read_earlier(const JobSetup& setup);

// Throws Error{kConfig} if two stages that train the same parameter are distributed differently
// over their hosts. The two stages would add gradients in different orders, so their copies of the
// parameter would differ. PLACE is the place of SETUP's rank in the job.
void check_ties(const JobSetup& setup, const runtime::Topology& place);

// Texts about the facts that must be the same on all ranks of a job even if their plans differ.
struct Agreement {
    std::string structure;
    std::string sizes;  // sizes of the values between segments
};
// Returns the texts of this rank. Ranks of one job have equal texts.
[[nodiscard]] Agreement agreement(const JobSetup& setup);

// Returns a description of the stages of a pipeline: a title, then one line per stage.
[[nodiscard]] std::string stages_text(const JobSetup& setup);

}  // namespace dslaunch::job

// The division of a job by its tensor or sequence parallelism: the ranks that work on a micro batch
// together, the graph that they share, and the shares of its parameters. Data path: config,
// model, first batch -> [here] -> job setup.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "graph/tensor/tensor_check.h"
#include "graph/tensor/tensor_rewrite.h"
#include "job/setup/job_setup.h"
#include "plan/mesh/mesh.h"

namespace dslaunch::runtime {
class Collectives;
}  // namespace dslaunch::runtime

namespace dslaunch::job {

struct TensorRequest {
    plan::TensorRules rules;
    bool sequence = false;  // true: rules.size ranks share positions, parameters are whole
    bool check = true;      // true: compare in fp64, at 32 bytes per parameter
};

// Returns the request that CONFIG makes; rules.size is 1 if nothing is shared.
[[nodiscard]] TensorRequest tensor_request(const config::RunConfig& config);

// Returns MODEL's LOWERED graph as REQUEST wants it, by the shapes of one micro batch: FIRST_INPUTS
// are the inputs of its first segment. Throws what make_tensor_parallel does.
[[nodiscard]] graph::TensorModel rewrite_for_group(const graph::Model& model,
                                                   const graph::LoweredGraph& lowered,
                                                   std::vector<c10::IValue> first_inputs,
                                                   const TensorRequest& request);

// Compares the graph under REQUEST's rules with the whole graph in fp64, with ranks as threads of
// this process. Throws what check_tensor_model does.
[[nodiscard]] graph::TensorCheck check_with_threads(const JobSetup& setup,
                                                    const std::vector<c10::IValue>& first_inputs,
                                                    const TensorRequest& request);

// Returns all ranks of the job as CONFIG lays them out.
[[nodiscard]] plan::Mesh mesh_of_job(const config::RunConfig& config,
                                     const runtime::Topology& place);

// Returns the group place of the rank at PLACE in a job. STAGE: its place in the ranks that train
// the same parameters. Throws Error{kConfig} if groups cannot be laid over the hosts' slots.
[[nodiscard]] SharingPlace place_in_group(const config::RunConfig& config,
                                          const runtime::Topology& place,
                                          const runtime::PipelinePlace& stage);

// Throws Error{kConfig} if SETUP's job cannot be shared in this version.
void check_sharing(const JobSetup& setup);

// Replaces SETUP's graph by its rank's group's graph, and its model's parameters by their shares.
// BATCH is the first micro batch; the job's FIRST rank compares the two graphs on it. Throws as
// rewrite_for_group and check_with_threads do.
void share_job(JobSetup& setup, const JobArguments& arguments,
               const std::vector<c10::IValue>& batch, bool first);

// Frees the shares that only stages other than SETUP's read.
void let_go_of_other_stages(JobSetup& setup);

// Copies PARAMETERS, indices of parameters that are not trained, from SETUP's whole model, which
// has changed.
void share_untrained(JobSetup& setup, const std::vector<int>& parameters);

// A scope in which this thread runs SETUP's graph without the other ranks of the group: shapes are
// as in a run, values are not.
class WithoutGroup {
  public:
    explicit WithoutGroup(const SharingPlace& place)
        : alone_({place.index, place.size}), scope_(place.size > 1 ? &alone_ : nullptr) {}

  private:
    graph::LoneTensorGroup alone_;
    graph::TensorGroupScope scope_;
};

// Called by all ranks of a group: checks that they reduce the same parameters together, and
// recompute the same segments. Throws Error{kConfig}: shares of unequal size can fill buckets
// differently.
void compare_plans_of_group(runtime::Collectives& group, const JobSetup& setup);

// Returns a description of the shared parts, a few lines; with the check's result if it was made.
[[nodiscard]] std::string sharing_text(const JobSetup& setup);

}  // namespace dslaunch::job

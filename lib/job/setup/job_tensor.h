// The division of a job by tensor or sequence parallelism: the ranks that work on a micro batch
// together, the graph that they share, and the shares of its parameters. Data path: config, model,
// first batch -> [here] -> job setup.
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

// The division of the work on a micro batch that the config requests.
struct TensorRequest {
    plan::TensorRules rules;
    bool sequence = false;  // true: rules.size ranks divide positions, parameters are whole
    bool check = true;      // true: compare in fp64, at 32 bytes per parameter
};

// Returns the tensor request for CONFIG; its rules.size is 1 if nothing is shared.
[[nodiscard]] TensorRequest tensor_request(const config::RunConfig& config);

// Returns LOWERED, the graph of MODEL, rewritten for a group of ranks as REQUEST says. The shapes
// come from one micro batch; FIRST_INPUTS are the inputs of its first segment. Throws what
// make_tensor_parallel throws.
[[nodiscard]] graph::TensorModel rewrite_for_group(const graph::Model& model,
                                                   const graph::LoweredGraph& lowered,
                                                   std::vector<c10::IValue> first_inputs,
                                                   const TensorRequest& request);

// Compares the graph that is rewritten by REQUEST's rules with the whole graph, in fp64. The ranks
// are threads of this process. Throws what check_tensor_model throws.
[[nodiscard]] graph::TensorCheck check_with_threads(const JobSetup& setup,
                                                    const std::vector<c10::IValue>& first_inputs,
                                                    const TensorRequest& request);

// Returns the mesh of all ranks of the job, as CONFIG lays them out.
[[nodiscard]] plan::Mesh mesh_of_job(const config::RunConfig& config,
                                     const runtime::Topology& place);

// Returns the rank's place in its tensor or sequence group. PLACE is the rank's place in the job,
// STAGE its place among the ranks that train the same parameters. Throws Error{kConfig} if the
// groups do not fit on the hosts' slots.
[[nodiscard]] SharingPlace place_in_group(const config::RunConfig& config,
                                          const runtime::Topology& place,
                                          const runtime::PipelinePlace& stage);

// Throws Error{kConfig} if this version cannot share SETUP's job among the ranks of a group.
void check_sharing(const JobSetup& setup);

// Replaces SETUP's graph by the graph of its rank's group, and the parameters of its model by the
// rank's shares. BATCH is the first micro batch. If FIRST is true (the job's first rank), compares
// the new graph with the old one on BATCH. Throws what rewrite_for_group and check_with_threads
// throw.
void share_job(JobSetup& setup, const JobArguments& arguments,
               const std::vector<c10::IValue>& batch, bool first);

// Frees the shares of parameters that SETUP's stage does not read.
void let_go_of_other_stages(JobSetup& setup);

// Copies the untrained PARAMETERS (indices) from SETUP's whole model to the rank's own model.
// Called after the whole model has changed.
void share_untrained(JobSetup& setup, const std::vector<int>& parameters);

// A scope in which this thread can run SETUP's graph without the other ranks of its group. Tensors
// have the same shapes as in a real run, but not the same values.
class WithoutGroup {
  public:
    explicit WithoutGroup(const SharingPlace& place)
        : alone_({place.index, place.size}), scope_(place.size > 1 ? &alone_ : nullptr) {}

  private:
    graph::LoneTensorGroup alone_;
    graph::TensorGroupScope scope_;
};

// Called by all ranks of a group. Checks that they reduce the same parameters together and
// recompute the same segments. Throws Error{kConfig} if they do not, since shares of unequal size
// can fill buckets differently.
void compare_plans_of_group(runtime::Collectives& group, const JobSetup& setup);

// Returns a description of the shared parts in a few lines. If this rank has compared the shared
// graph with the whole graph, includes the result.
[[nodiscard]] std::string sharing_text(const JobSetup& setup);

}  // namespace dslaunch::job

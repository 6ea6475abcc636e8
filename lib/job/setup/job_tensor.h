// What a job's tensor or sequence parallelism makes of it: which ranks work on a micro batch
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
    bool sequence = false;  // rules.size ranks share positions, parameters are whole
    bool check = true;      // in fp64: 32 bytes for each parameter
};

// What CONFIG asks for; rules.size is 1 where nothing is shared.
[[nodiscard]] TensorRequest tensor_request(const config::RunConfig& config);

// MODEL's lowered graph as REQUEST wants it, by the shapes of one micro batch that FIRST_INPUTS
// begin. Throws what make_tensor_parallel does.
[[nodiscard]] graph::TensorModel rewrite_for_group(const graph::Model& model,
                                                   const graph::LoweredGraph& lowered,
                                                   std::vector<c10::IValue> first_inputs,
                                                   const TensorRequest& request);

// The same rules on the graph in fp64, with ranks as threads of this process. Throws what
// check_tensor_model does.
[[nodiscard]] graph::TensorCheck check_with_threads(const JobSetup& setup,
                                                    std::vector<c10::IValue> first_inputs,
                                                    const TensorRequest& request);

// All ranks of the job as CONFIG lays them out.
[[nodiscard]] plan::Mesh mesh_of_job(const config::RunConfig& config,
                                     const runtime::Topology& place);

// Of the rank at PLACE of a job. STAGE: where it is among the ranks that train the same parameters.
// Throws Error{kConfig} for hosts whose slots no such groups can be laid over.
[[nodiscard]] SharingPlace place_in_group(const config::RunConfig& config,
                                          const runtime::Topology& place,
                                          const runtime::PipelinePlace& stage);

// Throws Error{kConfig} for what cannot be shared in this version.
void check_sharing(const JobSetup& setup);

// SETUP's graph becomes that of its place's group, and its model's parameters their shares. BATCH:
// the first micro batch; of the job's FIRST rank, which compares the two graphs on it. Throws as
// rewrite_for_group and check_with_threads do.
void share_job(JobSetup& setup, const JobArguments& arguments,
               const std::vector<c10::IValue>& batch, bool first);

// Shares that stages other than SETUP's train are let go.
void let_go_of_other_stages(JobSetup& setup);

// Parameters that are not trained, by index, become what SETUP's whole model has of them, which has
// changed.
void share_untrained(JobSetup& setup, const std::vector<int>& parameters);

// While it lives this thread runs SETUP's graph without the other ranks of the group: shapes are
// those of a run, values are not.
class WithoutGroup {
  public:
    explicit WithoutGroup(const SharingPlace& place)
        : alone_({place.index, place.size}), scope_(place.size > 1 ? &alone_ : nullptr) {}

  private:
    graph::LoneTensorGroup alone_;
    graph::TensorGroupScope scope_;
};

// Of all ranks of a group: whether they reduce the same parameters together, and recompute the same
// segments. Throws Error{kConfig}: shares of unequal size can fill buckets differently.
void compare_plans_of_group(runtime::Collectives& group, const JobSetup& setup);

// Who shares what, a few lines; the check's result where it was made.
[[nodiscard]] std::string sharing_text(const JobSetup& setup);

}  // namespace dslaunch::job

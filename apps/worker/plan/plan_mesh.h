// What `dslaunch plan` says of meshes: what the one that is asked for costs, and with --search the
// best there are for the hosts, with the config for them. Nothing of it is run but single segments.
#pragma once

#include <string>
#include <vector>

#include "job/setup/job_setup.h"
#include "plan/pipeline/pipeline_options.h"
#include "plan/print/mesh_text.h"
#include "plan/tensor/tensor_plan.h"
#include "worker/plan/plan_hosts.h"

namespace dslaunch::worker {

// Of `dslaunch plan` with --stages or --search.
struct MeshArguments {
    // Stages 0: no pipeline, or with SEARCH all; micro_batches 0: as the config says.
    plan::PipelineWish wish = {.stages = 0, .micro_batches = 0};
    std::string schedule;           // by name; empty: all of them
    std::string svg_path;           // empty: no picture
    bool tensor_given = false;      // a search looks at no other size
    plan::TensorRules tensor = {};  // size 1: none
    int sequence = 1;
    bool search = false;
    int simulated_ranks = 0;      // 0: none
    double flops_per_s = 0;       // of a rank; 0: segments are measured here
    double link_bytes_per_s = 0;  // between hosts; 0: not known
    double memory_gib = 0;        // of a rank; 0: no limit
    double host_memory_gib = 0;   // for SEARCH; 0: this machine's
    bool json = false;
    PlanHosts hosts = {};

    // Ranks of one copy of the model.
    [[nodiscard]] int copy_ranks() const { return wish.stages * tensor.size * sequence; }
};

// What meshes of SETUP's job cost on hosts like this machine: segments and updates are measured
// here, with the threads of a rank, unless ARGUMENTS say how many FLOP/s a rank does. Hosts are
// those of RANKS. Throws Error{kConfig} for a GPU without a rate, and what find_tensor_plan throws.
[[nodiscard]] plan::MeshRequest mesh_request(const job::JobSetup& setup,
                                             const MeshArguments& arguments, int ranks);

// How times in the text were found, a line.
[[nodiscard]] std::string times_text(const MeshArguments& arguments);

// The mesh that is asked for, with each schedule or the given one, the shortest step first.
// WORLD_SIZE ranks in all. Throws Error{kConfig} where none can be had.
[[nodiscard]] std::vector<plan::MeshFinding> find_meshes(const plan::MeshRequest& request,
                                                         const MeshArguments& arguments);
// The same as text: the costs of each, the details of the first, the mesh of up to 64 ranks.
[[nodiscard]] std::string meshes_text(const plan::MeshRequest& request,
                                      const std::vector<plan::MeshFinding>& found);

void print_meshes(const job::JobSetup& setup, const MeshArguments& arguments);
void print_search(const job::JobSetup& setup, const MeshArguments& arguments);

}  // namespace dslaunch::worker

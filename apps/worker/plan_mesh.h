// What `dslaunch plan` says of meshes: what the one that is asked for costs, and with --search the
// best there are for the hosts, with the config for them. Nothing of it is run but single segments.
#pragma once

#include <string>
#include <vector>

#include "plan/mesh_text.h"
#include "plan/pipeline_options.h"
#include "plan/tensor_plan.h"
#include "worker/job_setup.h"
#include "worker/plan_hosts.h"

namespace dslaunch {

// Of `dslaunch plan` with --stages or --search.
struct MeshArguments {
    // Stages 0: no pipeline, or with SEARCH all; micro_batches 0: as the config says.
    PipelineWish wish = {.stages = 0, .micro_batches = 0};
    std::string schedule;       // by name; empty: all of them
    std::string svg_path;       // empty: no picture
    bool tensor_given = false;  // a search looks at no other size
    TensorRules tensor = {};    // size 1: none
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
[[nodiscard]] MeshRequest mesh_request(const JobSetup& setup, const MeshArguments& arguments,
                                       int ranks);

// How times in the text were found, a line.
[[nodiscard]] std::string times_text(const MeshArguments& arguments);

// The mesh that is asked for, with each schedule or the given one, the shortest step first.
// WORLD_SIZE ranks in all. Throws Error{kConfig} where none can be had.
[[nodiscard]] std::vector<MeshFinding> find_meshes(const MeshRequest& request,
                                                   const MeshArguments& arguments);
// The same as text: the costs of each, the details of the first, the mesh of up to 64 ranks.
[[nodiscard]] std::string meshes_text(const MeshRequest& request,
                                      const std::vector<MeshFinding>& found);

void print_meshes(const JobSetup& setup, const MeshArguments& arguments);
void print_search(const JobSetup& setup, const MeshArguments& arguments);

}  // namespace dslaunch

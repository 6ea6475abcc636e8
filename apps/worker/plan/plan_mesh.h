// The meshes of `dslaunch plan`: the costs of the one that is asked for, and with --search the best
// ones for the hosts, with their config. Only single segments are run.
#pragma once

#include <string>
#include <vector>

#include "job/predict/job_forecast.h"
#include "job/setup/job_setup.h"
#include "plan/choose/schedule_choice.h"
#include "plan/print/mesh_text.h"
#include "plan/tensor/tensor_plan.h"
#include "worker/plan/plan_hosts.h"

namespace dslaunch::worker {

// The options of `dslaunch plan` with --stages or --search.
struct MeshArguments {
    // Stages 0: no pipeline, or with SEARCH all; micro_batches 0: the config's number.
    plan::PipelineWish wish = {.stages = 0, .micro_batches = 0};
    std::string schedule;           // name of the schedule; empty: all of them
    std::string svg_path;           // empty: no picture
    bool force = false;             // the picture may replace a file
    bool tensor_given = false;      // true: a search considers no other size
    plan::TensorRules tensor = {};  // size 1: no tensor parallelism
    int sequence = 1;
    bool search = false;
    int simulated_ranks = 0;      // 0: none
    double flops_per_s = 0;       // rate of a rank; 0: segments are measured here
    double link_bytes_per_s = 0;  // rate between hosts; 0: not known
    double memory_gib = 0;        // limit of a rank; 0: none
    double host_memory_gib = 0;   // for a search; 0: this machine's
    std::string device_memory;    // a GPU's memory as a size, or its name; empty: not known
    bool json = false;
    PlanHosts hosts = {};

    // Ranks of one copy of the model.
    [[nodiscard]] int copy_ranks() const { return wish.stages * tensor.size * sequence; }
};

// The rates of a rank of SETUP's job on the GPU that ARGUMENTS name, or by the rates that they
// give. Throws Error{kUsage} where they do neither. REQUIRES: SETUP is for GPUs.
[[nodiscard]] job::JobRates rates_of_gpu(const job::JobSetup& setup,
                                         const MeshArguments& arguments);

// The request for the costs of meshes of SETUP's job on hosts like this machine. Segments and
// updates are measured here, with the threads of a rank, unless ARGUMENTS give a rank's FLOP/s.
// The hosts are filled with RANKS. On GPUs each rank is a host of its own, timed by
// rates_of_gpu(). Throws what rates_of_gpu and find_tensor_plan throw.
[[nodiscard]] plan::MeshRequest mesh_request(const job::JobSetup& setup,
                                             const MeshArguments& arguments, int ranks);

// The source of the times in the text, a line.
[[nodiscard]] std::string times_text(const job::JobSetup& setup, const MeshArguments& arguments);

// The mesh that is asked for, with each schedule or the given one, the shortest step first.
// Throws Error{kConfig} if there is none.
[[nodiscard]] std::vector<plan::MeshFinding> find_meshes(const plan::MeshRequest& request,
                                                         const MeshArguments& arguments);
// FOUND as text: the costs of each mesh, the details of the first, its table for up to 64
// ranks.
[[nodiscard]] std::string meshes_text(const plan::MeshRequest& request,
                                      const std::vector<plan::MeshFinding>& found);

// Findings for 1, 2, 4, … copies of CHOICE's model, on up to the simulated number of ranks;
// none if there is no such number.
[[nodiscard]] std::vector<plan::MeshFinding> simulate_copies(const job::JobSetup& setup,
                                                             plan::MeshRequest request,
                                                             plan::MeshChoice choice,
                                                             const MeshArguments& arguments);
[[nodiscard]] std::string copies_text(const std::vector<plan::MeshFinding>& copies);
void findings_json(const std::vector<plan::MeshFinding>& found, JsonWriter& json);

void print_meshes(const job::JobSetup& setup, const MeshArguments& arguments);
void print_search(const job::JobSetup& setup, const MeshArguments& arguments);

}  // namespace dslaunch::worker

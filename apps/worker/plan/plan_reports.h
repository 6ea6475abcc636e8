// The parts of `dslaunch plan` that print something other than the plan of one job: meshes and
// pipelines, shared layers, the ways of sharding, the rules of the cache, the learning rate.
// Contacts no host, and runs only single segments and checks.
#pragma once

#include <string>
#include <utility>

#include "config/run/run_config.h"
#include "job/predict/job_forecast.h"
#include "job/setup/job_setup.h"
#include "job/setup/job_tensor.h"
#include "plan/choose/schedule_choice.h"
#include "plan/print/mesh_text.h"
#include "plan/tensor/tensor_plan.h"
#include "plan/tensor/tensor_rules.h"
#include "worker/plan/plan_hosts.h"

namespace dslaunch::worker {

// The options of `dslaunch plan` with --stages or --search.
struct MeshArguments {
    // If wish.stages is 0, a search tries any number of stages; without a search, there is no
    // pipeline. If wish.micro_batches is 0, the config gives the number of micro batches.
    plan::PipelineWish wish = {.stages = 0, .micro_batches = 0};
    std::string schedule;           // name of the schedule; empty: all schedules
    std::string svg_path;           // empty: no picture
    bool force = false;             // the picture may overwrite a file
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

    // Returns the number of ranks that hold one copy of the model.
    [[nodiscard]] int copy_ranks() const { return wish.stages * tensor.size * sequence; }
};

// Returns the rates of a rank of SETUP's job on the GPU that ARGUMENTS name, or the rates that
// ARGUMENTS give. Throws Error{kUsage} if they neither name a GPU nor give rates. REQUIRES: SETUP
// is for GPUs.
[[nodiscard]] job::JobRates rates_of_gpu(const job::JobSetup& setup,
                                         const MeshArguments& arguments);

// Prints the model as a pipeline: a comparison of schedules, a picture, copies of the pipeline on
// many ranks, and the costs of its mesh. SETUP is the job of the data-parallel ranks of one stage.
// Throws Error{kConfig} if the model cannot be divided into a pipeline, Error{kDisk} if the picture
// cannot be written.
void print_pipelines(const job::JobSetup& setup, MeshArguments arguments);

// Prints the meshes that suit the hosts best, and the config for the first mesh. Throws
// Error{kConfig} if no mesh fits.
void print_search(const job::JobSetup& setup, const MeshArguments& arguments);

// Parses PATTERN=RULE. Throws Error{kUsage} if the `=` is missing, Error{kConfig} if the rule is
// unknown.
[[nodiscard]] std::pair<std::string, plan::TensorRule> parse_tensor_rule_option(
    const std::string& text);

// Returns the tensor-parallel plan of the model by RULES. Derives the plan from the model's graph
// and the shapes of one micro batch, and does not run the graph of a rank's share. Throws what
// make_tensor_parallel throws.
[[nodiscard]] plan::TensorPlan find_tensor_plan(const job::JobSetup& setup,
                                                const plan::TensorRules& rules);

// Returns the tensor-parallel plan and its check as a table or one JSON object. Throws what
// make_tensor_parallel and check_tensor_model throw.
[[nodiscard]] std::string tensor_report(const job::JobSetup& setup,
                                        const job::TensorRequest& request, bool json);

// Returns a comparison of the ways of sharding, as a table or one JSON object. It shows for each
// way the largest and the smallest share of a rank, the number of pieces, and the bytes that a step
// reads, writes and sends because of the sharding.
[[nodiscard]] std::string compare_shards(const job::JobSetup& setup, bool in_json);

// Returns the comparison of cache rules for the rank of SETUP's plan, as a table or one JSON
// object. Throws Error{kConfig} if nothing is moved through swap buffers.
[[nodiscard]] std::string compare_caches(const job::JobSetup& setup, bool json);

// Returns a curve of the learning rate over all steps, and a table of the first, the highest and
// the last value. As JSON, returns an object with `steps`, a list of {step, lr}; `betas` are added
// if the scheduler changes them. The list has all steps, or 1000 evenly spaced ones. Throws
// Error{kUsage} if the number of steps is not known.
[[nodiscard]] std::string learning_rate_text(const config::RunConfig& config, bool json);

}  // namespace dslaunch::worker

// What `dslaunch plan --stages` prints: the model as a pipeline, schedules side by side, a picture,
// and copies of it on many ranks. Nothing of it is run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/pipeline_options.h"
#include "worker/job_setup.h"

namespace dslaunch {

struct PipelineArguments {
    // Stages 0: no pipeline; micro_batches 0: the config's accumulation steps.
    PipelineWish wish = {.stages = 0, .micro_batches = 0};
    std::string schedule;         // by name; empty: all of them
    std::string svg_path;         // empty: no picture
    int ranks_per_node = 0;       // 0: all on one host
    int simulated_ranks = 0;      // 0: none
    double flops_per_s = 0;       // of a rank; 0: segments are measured here
    double link_bytes_per_s = 0;  // of a rank; 0: not known
    double memory_gib = 0;        // of a rank; 0: no limit
    bool json = false;
};

// Prints to stdout. SETUP: of the data-parallel ranks of one stage. Throws Error{kConfig} where the
// model cannot be had as a pipeline, Error{kDisk} where the picture cannot be written.
void print_pipelines(const JobSetup& setup, PipelineArguments arguments);

}  // namespace dslaunch

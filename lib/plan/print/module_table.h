// The tables of flops_profiler: the costs of each module of a model in one step of a rank, in the
// form that DeepSpeed's profiler prints. Data path: graph/measure/module_profiler.h, ModelInfo ->
// [here] -> log or file. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "plan/model/model_info.h"

namespace dslaunch::plan {

// The costs of one module in a step, without the modules inside it.
struct ModuleCost {
    std::string path;           // "blocks.3.attn"; empty: the model itself
    int64_t forward_flops = 0;  // matrix products and convolutions, 2 per multiply-add
    Duration forward{0};
    Duration recompute{0};
    Duration backward{0};
};

// The step that was profiled.
struct ProfiledStep {
    int64_t step = 0;        // its number, from 1
    int64_t steps_done = 0;  // steps before it: flops_profiler.profile_step
    int64_t micro_steps = 1;
    int64_t micro_rows = 0;  // samples of a micro step on this rank
    int64_t rows = 0;        // samples of the step on all ranks
    int world_size = 1;
    int64_t data_parallel_size = 1;
    int64_t model_parallel_size = 1;  // ranks that share one copy of the model
    Duration time{0};                 // from its first instruction to its last
    double peak_tflops = 0;           // peak rate of the rank's device; 0: not known
};

// The keys of flops_profiler that shape the tables.
struct ModuleTableOptions {
    int64_t module_depth = -1;  // levels below the model; -1: all
    int64_t top_modules = 1;
    bool detailed = true;
};

// Returns the summary, the top modules of each level and, if wanted, the tree of modules. COSTS
// contains each path once, with sums over the step's micro steps; FLOPs and times are printed per
// micro step. The name of a parameter in MODEL gives the module that it belongs to. In the levels,
// modules that differ only in numbers are one module: "blocks.0" and "blocks.1" become "blocks.*".
[[nodiscard]] std::string module_tables(const ModelInfo& model, std::span<const ModuleCost> costs,
                                        const ProfiledStep& step,
                                        const ModuleTableOptions& options);

}  // namespace dslaunch::plan

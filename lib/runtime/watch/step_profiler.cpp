#include "runtime/watch/step_profiler.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "graph/measure/module_profiler.h"
#include "plan/print/module_table.h"
#include "storage/files/atomic_file.h"

namespace dslaunch::runtime {

StepProfiler::StepProfiler(const StepProfilerParts& parts) : parts_(parts) {
    if (parts_.model == nullptr || !parts_.config->flops_profiler.enabled) return;
    const int64_t step = parts_.config->flops_profiler.profile_step + 1;
    if (step > parts_.steps_before && step <= parts_.config->steps) {
        profiled_ = step;
        return;
    }
    log_warn("profile",
             "flops_profiler profiles the step after {}, but this run takes steps {} to {}: set "
             "flops_profiler.profile_step to a number from {} to {}",
             counted(step - 1, "step"), parts_.steps_before + 1, parts_.config->steps,
             parts_.steps_before, std::max(parts_.steps_before, parts_.config->steps - 1));
}

void StepProfiler::run(int64_t step, const std::function<void()>& run) const {
    if (step != profiled_) return run();
    const config::RunConfig& config = *parts_.config;
    graph::ModuleProfiler profiler(*parts_.model);
    const SystemClock clock;
    const TimePoint begin = clock.now();
    run();
    plan::ProfiledStep facts;
    facts.time = clock.now() - begin;
    facts.step = step;
    facts.steps_done = step - 1;
    facts.micro_steps = config.batch.accumulation_steps;
    facts.micro_rows = config.batch.micro_rows;
    facts.rows = config.batch.train_rows;
    facts.world_size = parts_.world_size;
    facts.data_parallel_size = config.batch.data_parallel_size;
    facts.model_parallel_size = config.ranks_of_copy();
    facts.peak_tflops = parts_.peak_tflops;
    const config::FlopsProfilerConfig& wanted = config.flops_profiler;
    report(plan::module_tables(*parts_.info, profiler.costs(), facts,
                               {wanted.module_depth, wanted.top_modules, wanted.detailed}));
}

void StepProfiler::report(const std::string& tables) const {
    const std::string& path = parts_.config->flops_profiler.output_file;
    if (!path.empty()) {
        try {
            std::error_code ignored;
            std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
            storage::write_atomically(path, tables + "\n");
            log_info("profile", "{} contains the flops profile of step {}", printable(path),
                     profiled_);
            return;
        } catch (const Error& error) {
            log_warn("profile",
                     "flops_profiler.output_file cannot be written: {}. The profile is printed "
                     "here instead",
                     error.what());
        }
    }
    log_info("profile", "flops profile of the modules of rank 0\n{}", tables);
}

}  // namespace dslaunch::runtime

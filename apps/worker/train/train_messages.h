// The messages of `dsworker train` to its user: refusals and warnings before the first step, and
// the summary after the last. Data path: job, result of the training -> [here] -> log, stdout. One
// thread.
#pragma once

#include <string>

#include "config/run/run_config.h"
#include "job/setup/job_setup.h"
#include "runtime/train/trainer.h"
#include "storage/checkpoint/manifest.h"

namespace dslaunch::worker {

// Throws Error{kUsage, kConfig} if `dslaunch verify` cannot predict the steps of the job SETUP.
void require_verifiable(const job::JobSetup& setup);

// Warns if the learning rate is 0 in all remaining steps, as in a warm-up that is longer than the
// run. RESUMED is the state in which the run begins.
void warn_of_no_change(const config::RunConfig& config, const storage::TrainingState& resumed);

// Logs what the steps sent to other hosts, compared with the plan.
void log_links(const runtime::TrainResult& result);

// Returns a summary like "trained 5 steps, loss 0.1234, in 2.0 s".
[[nodiscard]] std::string summary_of(const runtime::TrainResult& result,
                                     const config::RunConfig& config);

// Returns the end of the summary. It names the files of the trained weights in OUTPUT, or of an
// adapter if IS_ADAPTER is true. BEST_STEP is the step of the best weights if these are the written
// weights, else 0. If the job has hosts other than the launcher's host, names this rank's host too.
[[nodiscard]] std::string written_text(const std::string& output, bool is_adapter,
                                       int64_t best_step);

}  // namespace dslaunch::worker

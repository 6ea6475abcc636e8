// The checks of a training job that dslaunch can make before anything starts: the model is valid,
// the config is valid for this number of ranks, and the data exist. Data path: hostfile -> launch
// plan -> [here] -> transport. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/resolve/resolve.h"
#include "config/run/monitor_config.h"
#include "launch/plan/job_spec.h"
#include "launcher/options/run_options.h"

namespace dslaunch::launcher {

// The findings about a training job.
struct TrainingFacts {
    // The step at which the run to resume has ended and written its weights; 0 if there is work
    // left.
    int64_t finished_step = 0;
    config::MonitorsConfig monitors;  // monitors that the config wants; JobSpec has their files
};

// Reads the archive's directory or the model's folder, and the config (from --config, packed in the
// archive, or in the model's folder, in this order). Adds every file that must be equal on all
// nodes to SPEC.required_files, sets SPEC.monitors, and sets SPEC.device if the config names one.
// Throws Error{kSetup} if the config wants a GPU and this machine has none, Error{kInput} if the
// model or the data cannot be read here, and Error{kConfig} with all problems of the config, worded
// as the worker words them. REQUIRES: the target is a model, and SPEC has nodes. Hashes nothing.
TrainingFacts look_into_training_job(const RunOptions& options, launch::JobSpec& spec);

// The config of a training job.
struct JobConfig {
    config::TrainConfig text;   // the config that was found, without the options; may be empty
    config::Resolved resolved;  // with the options, for the job's number of ranks
};

// Returns the config that SPEC's job would use, as far as it is known without model and data.
// Throws Error{kInput} if the model cannot be read, Error{kConfig} with all problems of the config.
// REQUIRES: the target is a model.
[[nodiscard]] JobConfig config_of_job(const RunOptions& options, const launch::JobSpec& spec);

// Returns the settings with which the resumed run of OPTIONS began, in the form of
// config::begun_values(). OUTPUT is the folder of --output. Returns an empty list if nothing is
// resumed, or if this machine cannot read the run.
[[nodiscard]] std::vector<std::string> begun_of(const RunOptions& options,
                                                const std::string& output);

// For a job that trains nothing (RunOptions::role), adds the files of its model and tokenizer to
// the files that every host needs. Throws Error{kInput} if the target is not a model.
void require_role_files(const RunOptions& options, launch::JobSpec& spec);

}  // namespace dslaunch::launcher

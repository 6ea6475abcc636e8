// The checks of a .pt job that dslaunch can make before anything starts: a valid archive, a config
// that is valid for this number of ranks, data that are there. Data path: hostfile -> launch plan
// -> [here] -> transport. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/plan/job_spec.h"
#include "launcher/run/run_options.h"

namespace dslaunch::launcher {

struct TrainingFacts {
    // The step at which the run to resume has ended, weights and all; 0: there is work left.
    int64_t finished_step = 0;
};

// Reads the archive's directory and the config (--config, packed, beside the archive, in this
// order), adds every file that must be equal on all nodes to SPEC.required_files, and settles
// SPEC.device if the config names one. Throws Error{kSetup} if the config wants a GPU and this
// machine has none; Error{kInput} if the model or the data cannot be read here; Error{kConfig} with
// all problems of the config, in a worker's words. REQUIRES: a .pt target, SPEC with nodes. Hashes
// nothing.
TrainingFacts look_into_training_job(const RunOptions& options, launch::JobSpec& spec);

// Returns the beginning of the run that OPTIONS resume, as config::begun_values() has it; OUTPUT is
// the folder of --output. Empty: nothing is resumed, or this machine does not see the run.
[[nodiscard]] std::vector<std::string> begun_of(const RunOptions& options,
                                                const std::string& output);

// Does the same for a job that trains nothing (RunOptions::role): adds the files of its model and
// tokenizer to the files that every host needs. Throws Error{kInput} if it is not a model.
void require_role_files(const RunOptions& options, launch::JobSpec& spec);

}  // namespace dslaunch::launcher

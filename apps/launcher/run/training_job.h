// What dslaunch itself can know of a .pt job before anything starts: that the archive is one, that
// the config holds for this number of ranks, where the data lie. hostfile -> launch plan -> [here]
// -> transport. One thread.
#pragma once

#include <string>
#include <vector>

#include "launch/plan/job_spec.h"
#include "launcher/run/run_options.h"

namespace dslaunch::launcher {

// Reads the archive's directory and the config (--config, packed, beside the archive, in this
// order), adds every file that the nodes must hold equal to SPEC.required_files and settles
// SPEC.device where the config names one. Throws Error{kSetup}: a GPU without one here;
// Error{kInput}: the model or the data cannot be read here; Error{kConfig}: all problems of the
// config, as a worker would say them. REQUIRES: a .pt target, SPEC with nodes. Hashes nothing.
void look_into_training_job(const RunOptions& options, launch::JobSpec& spec);

}  // namespace dslaunch::launcher

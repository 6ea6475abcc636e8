// Finds the commands that people want when a training job has ended: a command that continues the
// job, and a command that uses its result. Data path: command line, RunOptions, JobSpec -> [here]
// -> a line for people. Reads files of the model and of the job. One thread.
#pragma once

#include <span>
#include <string>

#include "launch/plan/job_spec.h"
#include "launcher/options/run_options.h"

namespace dslaunch::launcher {

// Returns `dslaunch WORDS` with --resume. If IS_OWN is true, the job has chosen its output folder
// itself, so the command also names the output folder of OPTIONS. The words are quoted for a shell,
// and secrets are hidden. Returns an empty text if the job has no output folder.
[[nodiscard]] std::string resume_command(std::span<const std::string> words,
                                         const RunOptions& options, bool is_own);

// Returns the command that generates text with the trained model of SPEC and OPTIONS. Returns an
// empty text if the weights are not on this machine, or if the model is not a language model.
[[nodiscard]] std::string use_command(const launch::JobSpec& spec, const RunOptions& options);

}  // namespace dslaunch::launcher

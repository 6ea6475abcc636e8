// Finds the commands that people want when a training job has ended: to go on with it, or to use
// its result. Data path: command line, RunOptions, JobSpec -> [here] -> a line for people. Looks at
// the files of the model and of the job. One thread.
#pragma once

#include <span>
#include <string>

#include "launch/plan/job_spec.h"
#include "launcher/run/run_options.h"

namespace dslaunch::launcher {

// Returns `dslaunch WORDS` with --resume, and with the OUTPUT of OPTIONS if the job named it itself
// (IS_OWN); quoted for a shell, secrets hidden. Empty if the job keeps nothing.
[[nodiscard]] std::string resume_command(std::span<const std::string> words,
                                         const RunOptions& options, bool is_own);

// Returns the command that makes the trained model of SPEC and OPTIONS write text. Empty: the
// weights are not on this machine, or the model writes no text.
[[nodiscard]] std::string use_command(const launch::JobSpec& spec, const RunOptions& options);

}  // namespace dslaunch::launcher

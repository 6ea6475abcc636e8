// Chooses how texts are made where a request is silent: an option of the command line counts first,
// then generation_config.json of the model's folder, then a default. Data path: command line,
// generation_config.h -> [here] -> generate, serve. Pure but for log lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/text/command_line.h"
#include "decoder/sample/sampler.h"
#include "storage/huggingface/generation_config.h"

namespace dslaunch::worker {

// Options of the command line; empty ones were not given.
struct SamplingArguments {
    std::optional<double> temperature, top_p, min_p, repetition_penalty;
    std::optional<int64_t> top_k;
};

// Declares --temperature, --top-k, --top-p, --min-p and --repetition-penalty.
void declare_sampling(CommandLine& app, SamplingArguments& arguments);

// Returns ARGUMENTS; else what CONFIG says, with transformers' defaults for settings that it leaves
// out if it says how tokens are drawn; else the defaults. Throws Error{kUsage} naming an option
// that is out of range.
[[nodiscard]] decoder::SamplingOptions sampling_of(const SamplingArguments& arguments,
                                                   const storage::GenerationConfig& config);

// Logs as ROLE what CONFIG decides beside ARGUMENTS, and which of its settings nothing here obeys.
void tell_generation(const char* role, const SamplingArguments& arguments,
                     const storage::GenerationConfig& config);

}  // namespace dslaunch::worker

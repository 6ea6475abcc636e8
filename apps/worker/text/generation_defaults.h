// Chooses the sampling settings: an option of the command line counts first, then
// generation_config.json in the model's folder, then a default. Data path: command line,
// generation_config.h -> [here] -> generate, serve. Pure, except for log lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/text/command_line.h"
#include "decoder/sample/sampler.h"
#include "storage/huggingface/generation_config.h"

namespace dslaunch::worker {

// Options of the command line. A member has no value if its option was not given.
struct SamplingArguments {
    std::optional<double> temperature, top_p, min_p, repetition_penalty;
    std::optional<int64_t> top_k;
};

// Declares --temperature, --top-k, --top-p, --min-p and --repetition-penalty.
void declare_sampling(CommandLine& app, SamplingArguments& arguments);

// Returns the settings in ARGUMENTS. A setting that ARGUMENTS lack comes from CONFIG. A setting
// that both lack has a default: if CONFIG sets how tokens are sampled, the default of transformers,
// otherwise the default of dslaunch. Throws Error{kUsage}, naming an option that is out of range.
[[nodiscard]] decoder::SamplingOptions sampling_of(const SamplingArguments& arguments,
                                                   const storage::GenerationConfig& config);

// Logs, as ROLE, the settings that CONFIG decides because ARGUMENTS lack them, and warns about
// settings in CONFIG that are not implemented.
void tell_generation(const char* role, const SamplingArguments& arguments,
                     const storage::GenerationConfig& config);

}  // namespace dslaunch::worker

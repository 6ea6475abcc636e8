// Commands of other programs for language models, typed in place of a subcommand, and the commands
// of dslaunch that do the same. Data path: command line -> [here] -> error message. No threads.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace dslaunch::launcher {

// Returns advice for a user who typed TOOL with ARGUMENTS after it, such as `ollama` with `run
// NAME`: a whole command of dslaunch, or that there is none. A model that ARGUMENTS name and that
// exists takes the place of MODEL in it. Returns an empty text if TOOL is not a known program.
[[nodiscard]] std::string other_tool_advice(std::string_view tool,
                                            std::span<const std::string> arguments);

// Returns true if TOOL with ARGUMENTS starts the ranks of a job, as deepspeed, torchrun and
// `accelerate launch` do. Under dslaunch, it would start all ranks once for each rank.
[[nodiscard]] bool is_other_launcher(std::string_view tool, std::span<const std::string> arguments);

}  // namespace dslaunch::launcher

// The text of --print-env. Pure.
#pragma once

#include <span>
#include <string>

#include "launch/process/spawn.h"

namespace dslaunch::launch {

// The environment that one rank really got.
struct RankVariables {
    int rank = 0;
    std::string host;
    EnvironmentList variables;
};

// Returns the text of --print-env, the environment that the ranks really got: first the variables
// that are equal everywhere, each once, then the variables that differ, by host. Values of secrets
// are hidden. Variables that differ because dslaunch sets them for each rank are only named. Ends
// with a newline.
[[nodiscard]] std::string describe_environments(std::span<const RankVariables> ranks);

}  // namespace dslaunch::launch

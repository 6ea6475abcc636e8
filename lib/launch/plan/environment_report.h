// --print-env: the environment that the ranks really got, as a reader can take it in: once what is
// equal everywhere, then what differs, by host. Pure.
#pragma once

#include <span>
#include <string>

#include "launch/plan/worker_environment.h"

namespace dslaunch::launch {

struct RankVariables {
    int rank = 0;
    std::string host;
    EnvironmentList variables;  // environment of the rank
};

// Values of secrets are hidden. Variables that dslaunch writes for each rank and that differ are
// only named. Ends with a newline.
[[nodiscard]] std::string describe_environments(std::span<const RankVariables> ranks);

}  // namespace dslaunch::launch

// Environment variables as a list: what programs are started with. A plain value.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace dslaunch::launch {

// Names and values, in order; a later value of a name wins.
using EnvironmentList = std::vector<std::pair<std::string, std::string>>;

}  // namespace dslaunch::launch

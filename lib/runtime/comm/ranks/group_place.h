// Some ranks of a job as a world of their own, seen from one of them: those of a stage, or those
// that share a layer. Data path: mesh, topology -> group place -> job comm. A value type.
#pragma once

#include <vector>

#include "runtime/comm/ranks/topology.h"

namespace dslaunch::runtime {

struct GroupPlace {
    Topology topology;
    std::vector<int> members = {0};  // ranks of the job, ascending
};

}  // namespace dslaunch::runtime

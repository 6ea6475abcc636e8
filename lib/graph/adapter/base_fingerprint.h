// A mark of the frozen weights that adapters train beside, which their checkpoints do not hold:
// resuming beside other weights is found by it. Data path: model -> [here] -> job/run's saving.
#pragma once

#include <string>

#include "graph/archive/model.h"

namespace dslaunch::graph {

// 16 hex digits of MODEL's frozen parameters: names, sizes, and 16 elements of each, evenly spaced.
// A few pages of each are read, not the whole. REQUIRES: the parameters have the values that they
// were loaded with.
[[nodiscard]] std::string base_fingerprint(const Model& model);

}  // namespace dslaunch::graph

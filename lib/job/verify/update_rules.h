// The optimizers' formulas once more, an element at a time in fp64: what an update must come to
// within the rounding of fp32. Feeds job_verifier.h. Sources: as in kernels/flat_optimizer.h. Pure.
#pragma once

#include <cstdint>

#include "config/run/run_config.h"

namespace dslaunch::job {

// An element's fp32 values before an update or after it.
struct ElementValues {
    double parameter = 0;
    double first = 0, second = 0;  // states; 0 where the optimizer has none
};

struct UpdateFacts {
    double gradient = 0;  // unscaled and clipped
    double lr = 0;
    int64_t update = 1;  // from 1
};

// How far AFTER is from what CONFIG's rule makes of BEFORE, as a multiple of what rounding
// explains: at most 1 is right. REQUIRES: CONFIG needs no whole tensors.
[[nodiscard]] double update_error(const config::OptimizerConfig& config, const UpdateFacts& facts,
                                  const ElementValues& before, const ElementValues& after);

}  // namespace dslaunch::job

// A micro batch for passes that only look at the model: for its shapes, its times, its tensor plan.
#pragma once

#include <vector>

#include "job/setup/job_setup.h"

namespace dslaunch::job {

enum class TrialTokens {
    kZero,
    kSpread,  // far apart in the vocabulary
};

// As many rows as every micro batch in training has: the first of the data, and again from the
// start where there are fewer. Without data TOKENS of the context's length, in each argument.
// REQUIRES: SETUP has its segments, and data unless the config has a context.
[[nodiscard]] std::vector<c10::IValue> trial_batch(const JobSetup& setup,
                                                   TrialTokens tokens = TrialTokens::kZero);

}  // namespace dslaunch::job

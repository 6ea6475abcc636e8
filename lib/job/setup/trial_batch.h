// A micro batch for passes that only look at the model: for its shapes, its times, its tensor plan;
// and the length of its samples if nothing names it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job/setup/job_setup.h"

namespace dslaunch::job {

enum class TrialTokens {
    kZero,
    kSpread,  // far apart in the vocabulary
};

// Returns a batch as large as training's micro batch: the first rows of the data in which a target
// counts, again from the start if there are fewer. Without data, each argument has TOKENS of the
// context's length. REQUIRES: SETUP has its segments, and data unless the config has a context.
[[nodiscard]] std::vector<c10::IValue> trial_batch(const JobSetup& setup,
                                                   TrialTokens tokens = TrialTokens::kZero);

struct ContextChoice {
    int64_t tokens = 0;  // 0: the config names them, rows have them, or nothing tells
    std::string reason;
};

// Returns the context of SETUP's token file, or of the tokens that PLAN_ONLY assumes without data.
// The same for each rank. REQUIRES: the config is resolved and the model lowered.
[[nodiscard]] ContextChoice choose_context(JobSetup& setup, bool plan_only);

}  // namespace dslaunch::job

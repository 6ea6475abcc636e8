// A micro batch for passes that only examine the model, for its shapes, its times or its tensor
// plan. Also chooses the length of the samples if no setting names it.
#pragma once

#include <cstdint>
#include <vector>

#include "job/setup/job_setup.h"
#include "plan/choose/choice.h"

namespace dslaunch::job {

// The tokens that fill a trial batch if there are no data.
enum class TrialTokens {
    kZero,
    kSpread,  // tokens that are far apart in the vocabulary
};

// Returns a batch with as many rows as training's micro batch. The batch has the first rows of the
// data that have a target for the loss; if there are too few rows, they are repeated. Without data,
// each argument gets rows of TOKENS, as long as the config's context. REQUIRES: SETUP has its
// segments, and has data unless the config has a context.
[[nodiscard]] std::vector<c10::IValue> trial_batch(const JobSetup& setup,
                                                   TrialTokens tokens = TrialTokens::kZero);

// The number of tokens in a sample; 0: the config or the rows decide the length, or no length is
// known.
using ContextChoice = plan::Choice<int64_t>;

// Returns the context for SETUP's token file. If there are no data and PLAN_ONLY is true, returns
// the context for assumed tokens. The result is the same on each rank. REQUIRES: the config is
// resolved and the model is lowered.
[[nodiscard]] ContextChoice choose_context(JobSetup& setup, bool plan_only);

}  // namespace dslaunch::job

// The step plans of a job whose updates differ: in some, hosts exchange less than gradients in
// full, or the rest of the parameters lags. Tells the kinds, how often each runs, and what that
// saves. Data path: job setup -> [here] -> `dslaunch plan`, log, steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "job/setup/job_setup.h"

namespace dslaunch::job {

struct StepPhase {
    plan::StepKind kind;
    int64_t first_update = 1;
    int64_t updates = 0;  // of the config's steps
    plan::StepPlan plan;  // of this rank
};

// Returns the phases in the order in which they first come; one if all updates are of one kind.
// Without the config's steps the first 10,000 updates are counted.
[[nodiscard]] std::vector<StepPhase> step_phases(const JobSetup& setup);

// Returns "hosts exchange …" or "a step updates …".
[[nodiscard]] std::string phase_title(const StepPhase& phase);

// Returns a table of the bytes that those phases send; empty: there is only one phase. And a line
// of the same for a log.
[[nodiscard]] std::string exchange_table(const JobSetup& setup,
                                         const std::vector<StepPhase>& phases);
[[nodiscard]] std::string exchange_line(const JobSetup& setup);
// Returns such a table of what steps update and what they read and write on disk.
[[nodiscard]] std::string lag_table(const JobSetup& setup, const std::vector<StepPhase>& phases);
[[nodiscard]] std::string lag_line(const JobSetup& setup);
// Writes the phases as an array.
void phases_json(const std::vector<StepPhase>& phases, JsonWriter& json);

}  // namespace dslaunch::job

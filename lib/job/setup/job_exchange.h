// The step plans of a job whose updates differ: in some steps, hosts exchange less than full
// gradients, or updates of some parameters lag. Lists the kinds of steps, how often each kind
// occurs, and the bytes that are saved. Data path: job setup -> [here] -> `dslaunch plan`, log,
// steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "job/setup/job_setup.h"

namespace dslaunch::job {

// All updates of one kind: the first of them, their number, and the plan of their steps.
struct StepPhase {
    plan::StepKind kind;
    int64_t first_update = 1;
    int64_t updates = 0;  // number of the config's updates in this phase
    plan::StepPlan plan;  // of this rank
};

// Returns the phases in the order in which they first occur; a single phase if all updates are of
// one kind. If the config has no number of steps, the first 10,000 updates are counted.
[[nodiscard]] std::vector<StepPhase> step_phases(const JobSetup& setup);

// Returns the title of PHASE: "hosts exchange …" or "a step updates …".
[[nodiscard]] std::string phase_title(const StepPhase& phase);

// Returns a table of the bytes that hosts send in each phase; empty unless the optimizer compresses
// them. exchange_line returns the same facts in one line for a log.
[[nodiscard]] std::string exchange_table(const JobSetup& setup,
                                         const std::vector<StepPhase>& phases);
[[nodiscard]] std::string exchange_line(const JobSetup& setup);
// Returns a table of the values that each phase updates, and of the bytes that it reads and writes
// on disk; empty unless updates lag. lag_line describes the schedule of these updates in one line
// for a log.
[[nodiscard]] std::string lag_table(const JobSetup& setup, const std::vector<StepPhase>& phases);
[[nodiscard]] std::string lag_line(const JobSetup& setup);
// Writes the phases as a JSON array.
void phases_json(const std::vector<StepPhase>& phases, JsonWriter& json);

}  // namespace dslaunch::job

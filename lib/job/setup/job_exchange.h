// The step plans of a job whose hosts exchange less than gradients in full in some of its updates:
// which there are, how often each is run, and what that saves. Data path: job setup -> [here] ->
// `dslaunch plan`, log, steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "job/setup/job_setup.h"

namespace dslaunch::job {

// One of the exchanges that the config's optimizer makes.
struct ExchangePhase {
    plan::Exchange exchange = plan::Exchange::kExact;
    int64_t first_update = 1;
    int64_t updates = 0;  // of the config's steps
    plan::StepPlan plan;  // of this rank
};

// In the order in which they are first made; one alone where the optimizer compresses nothing.
// Without the config's steps those of the first 10,000 updates are counted.
[[nodiscard]] std::vector<ExchangePhase> exchange_phases(const JobSetup& setup);

// What those phases send, a table; empty: there is one alone. And a line of the same for a log.
[[nodiscard]] std::string exchange_table(const JobSetup& setup,
                                         const std::vector<ExchangePhase>& phases);
[[nodiscard]] std::string exchange_line(const JobSetup& setup);
// The phases as an array.
void exchange_json(const std::vector<ExchangePhase>& phases, JsonWriter& json);

}  // namespace dslaunch::job

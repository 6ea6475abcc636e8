// Samples that are longer than the model was made for, and micro batches of a plan that are too
// large to be run here. Data path: config, data -> [here] -> measured ModelInfo -> plan.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "job/setup/job_setup.h"

namespace dslaunch::job {

// Returns the tokens of a sample: as the data have them or, without data, the config's context.
[[nodiscard]] int64_t sample_tokens(const JobSetup& setup);

// Refuses samples of TOKENS tokens if the model has fewer positions. Throws Error{kInput}.
void require_positions(const JobSetup& setup, int64_t tokens);

// Warns if samples have more tokens than the model was made for, and the model has no table of
// positions (rotary positions). The model then trains at positions that it has never seen. Refuses
// them in a plan of a model with a table.
void warn_of_length(const JobSetup& setup);

// Measures a batch; the caller's way to do so.
using MeasureBatch = std::function<plan::ModelInfo(const std::vector<c10::IValue>& batch)>;

// A measurement of a plan's micro batch.
struct PlanMeasurement {
    plan::ModelInfo info;
    std::vector<c10::IValue> batch;  // the batch that was run, which may be shorter
    std::string estimate;            // why INFO is an estimate; empty: the whole batch was run
};

// Measures BATCH for a plan with MEASURE. If a pass over it would take longer than about half a
// minute or more memory than this machine has free, measures passes over the begin of its first
// sample instead, which get longer for at most about half a minute, and estimates the rest. Throws
// the errors of MEASURE. Blocks.
[[nodiscard]] PlanMeasurement measure_for_plan(const JobSetup& setup,
                                               const std::vector<c10::IValue>& batch,
                                               const MeasureBatch& measure);

}  // namespace dslaunch::job

// A step as it ran, lane by lane, as a trace that https://ui.perfetto.dev and chrome://tracing open
// ("Trace Event Format", complete events). Pure.
#pragma once

#include <span>
#include <string>

#include "plan/model/model_info.h"
#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// SPANS: of the plan's instructions, in their order. PREDICTED: of the same instructions, as
// step_forecast.h gives them; not empty, it is a second group of tracks beside the measured one.
// Times in the trace are microseconds.
[[nodiscard]] std::string trace_json(const StepPlan& plan, const ModelInfo& model,
                                     std::span<const InstructionSpan> spans,
                                     std::span<const InstructionSpan> predicted = {});

}  // namespace dslaunch::plan

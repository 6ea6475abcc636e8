// A step that has run, lane by lane, as a trace that https://ui.perfetto.dev and chrome://tracing
// can open ("Trace Event Format", complete events). Pure.
#pragma once

#include <span>
#include <string>

#include "plan/model/model_info.h"
#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// Returns the trace. SPANS are the spans of the plan's instructions, in order. PREDICTED are the
// spans of the same instructions as predicted by step_forecast.h. If they are not empty, they are
// shown as a second group of tracks beside the measured group. Times in the trace are in
// microseconds.
[[nodiscard]] std::string trace_json(const StepPlan& plan, const ModelInfo& model,
                                     std::span<const InstructionSpan> spans,
                                     std::span<const InstructionSpan> predicted = {});

}  // namespace dslaunch::plan

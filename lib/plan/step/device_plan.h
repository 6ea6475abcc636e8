// The step of a rank whose tensors lie on a GPU: an edit of the plan of stage 0. The compute lane
// fills the device's compute stream, the communication lane its communication stream, so
// instructions that need a reduced bucket come as late as possible: earlier ones would delay a
// backward that could run meanwhile. Pure.
#pragma once

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// The plan with Accumulate (before its bucket is claimed again), Norm and Update (after everything
// else) on the compute lane, without Await (no other rank writes these parameters), and with every
// buffer in the device's own memory; only Reduce moves bytes between ranks. Waits are derived anew.
// REQUIRES: no fused update.
[[nodiscard]] StepPlan make_device_plan(StepPlan plan);

}  // namespace dslaunch::plan

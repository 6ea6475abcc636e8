// The output of `dslaunch plan --stages`: the model as a pipeline, schedules side by side, a
// picture, copies of the pipeline on many ranks, and the costs of its mesh. No pipeline is run.
#pragma once

#include "worker/plan/plan_mesh.h"

namespace dslaunch::worker {

// Prints to stdout. SETUP is the job of the data-parallel ranks of one stage. Throws Error{kConfig}
// if the model cannot be made a pipeline, Error{kDisk} if the picture cannot be written.
void print_pipelines(const job::JobSetup& setup, MeshArguments arguments);

}  // namespace dslaunch::worker

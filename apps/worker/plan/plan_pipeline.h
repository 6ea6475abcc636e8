// What `dslaunch plan --stages` prints: the model as a pipeline, schedules side by side, a picture,
// copies of it on many ranks, and what the mesh of it costs. Nothing of it is run.
#pragma once

#include "worker/plan/plan_mesh.h"

namespace dslaunch::worker {

// Prints to stdout. SETUP: of the data-parallel ranks of one stage. Throws Error{kConfig} where the
// model cannot be had as a pipeline, Error{kDisk} where the picture cannot be written.
void print_pipelines(const job::JobSetup& setup, MeshArguments arguments);

}  // namespace dslaunch::worker

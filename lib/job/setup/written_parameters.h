// Trained parameters that forward writes (graph/lowered/lowered_graph.h): tells which of them a job
// can write as one process does, and on which ranks.
#pragma once

#include <functional>

#include "job/setup/job_setup.h"

namespace dslaunch::job {

// Returns true if forward writes trained parameters, before a step or in its graph.
[[nodiscard]] bool writes_parameters(const JobSetup& setup);

// Returns true for the parameters that SETUP's stage trains; empty: all.
[[nodiscard]] std::function<bool(int parameter)> written_here(const JobSetup& setup);

// Throw Error{kInput} naming the parameter, where it is written, why one process cannot compute the
// same, and what to do. The first checks writes by the graph itself, the second the rest. REQUIRES
// of the second: the job is laid out.
void check_writes_in_place(const JobSetup& setup);
void check_writes(const JobSetup& setup);
// Checks the same for HELD_OUT, the graph in eval mode.
void check_held_out_writes(const JobSetup& setup, const graph::LoweredGraph& held_out);

}  // namespace dslaunch::job

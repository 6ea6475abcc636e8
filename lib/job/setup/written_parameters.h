// Trained parameters that forward writes (graph/lowered/lowered_graph.h). Decides which of these
// writes a job can do with the same result as a single process, and on which ranks.
#pragma once

#include <functional>

#include "job/setup/job_setup.h"

namespace dslaunch::job {

// Returns true if forward writes trained parameters, before a step or in its graph.
[[nodiscard]] bool writes_parameters(const JobSetup& setup);

// Returns a function that returns true for the parameters that SETUP's stage trains. Returns an
// empty function if the stage trains all parameters.
[[nodiscard]] std::function<bool(int parameter)> written_here(const JobSetup& setup);

// Throw Error{kInput} if a write cannot be done with the same result as in a single process. The
// error names the parameter, where it is written, the reason, and what to do. check_writes_in_place
// checks writes by the graph itself, check_writes checks all other writes. REQUIRES for
// check_writes: the job is laid out.
void check_writes_in_place(const JobSetup& setup);
void check_writes(const JobSetup& setup);
// Does the checks of check_writes_in_place() and check_writes() for HELD_OUT, the graph in eval
// mode.
void check_held_out_writes(const JobSetup& setup, const graph::LoweredGraph& held_out);

}  // namespace dslaunch::job
